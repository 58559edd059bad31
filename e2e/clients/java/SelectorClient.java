import java.util.Map;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;

/** A participant of Curator's LeaderSelector with autoRequeue: {@code SelectorClient HOSTS PATH ID}. */
final class SelectorClient {
    public static void main(String[] args) throws Exception {
        String id = args[2];
        CuratorFramework client = Curator.connect(args[0]);
        LeaderSelector selector = new LeaderSelector(client, args[1],
                new LeaderSelectorListenerAdapter() {
                    @Override
                    public void takeLeadership(CuratorFramework c) throws Exception {
                        Say.line("leader", Map.of("id", id));
                        try {
                            // An interrupt ends the term: the connection was suspended or lost.
                            Say.STOP.await();
                        } finally {
                            Say.line("not_leader", Map.of("id", id));
                        }
                    }
                });
        selector.setId(id);
        selector.autoRequeue();
        Say.started(id, selector, client);
        selector.start();
        Say.views(() -> {
            Say.View view = new Say.View();
            String leader = selector.getLeader().getId();
            view.leader = leader.isEmpty() ? null : leader;
            for (Participant participant : selector.getParticipants()) {
                view.queue.add(participant.getId());
            }
            view.hasLeadership = selector.hasLeadership();
            return view;
        });
    }
}
