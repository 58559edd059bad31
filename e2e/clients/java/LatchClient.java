import java.util.Map;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.Participant;

/** A participant of Curator's LeaderLatch: {@code LatchClient HOSTS PATH ID}. */
final class LatchClient {
    public static void main(String[] args) throws Exception {
        String id = args[2];
        CuratorFramework client = Curator.connect(args[0]);
        LeaderLatch latch = new LeaderLatch(client, args[1], id);
        latch.addListener(new LeaderLatchListener() {
            @Override
            public void isLeader() {
                Say.line("leader", Map.of("id", id));
            }

            @Override
            public void notLeader() {
                Say.line("not_leader", Map.of("id", id));
            }
        });
        Say.started(id, latch, client);
        latch.start();
        Say.views(() -> {
            Say.View view = new Say.View();
            String leader = latch.getLeader().getId();
            view.leader = leader.isEmpty() ? null : leader;
            for (Participant participant : latch.getParticipants()) {
                view.queue.add(participant.getId());
            }
            view.hasLeadership = latch.hasLeadership();
            return view;
        });
    }
}
