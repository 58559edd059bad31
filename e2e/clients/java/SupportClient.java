import java.util.Map;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.leader.LeaderElectionSupport;
import org.apache.zookeeper.recipes.leader.LeaderElectionSupport.EventType;

/** A candidate of ZooKeeper's own LeaderElectionSupport: {@code SupportClient HOSTS PATH ID}. */
final class SupportClient {
    private static volatile boolean elected;

    public static void main(String[] args) throws Exception {
        String id = args[2];
        ZooKeeper client = Recipes.connect(args[0], args[1]);
        LeaderElectionSupport support = new LeaderElectionSupport();
        support.setZooKeeper(client);
        support.setRootNodeName(args[1]);
        support.setHostName(id);
        support.addListener(event -> {
            if (event == EventType.ELECTED_COMPLETE) {
                elected = true;
                Say.line("leader", Map.of("id", id));
            }
        });
        Say.started(id, client);
        support.start();
        Say.views(() -> {
            Say.View view = new Say.View();
            view.leader = support.getLeaderHostName();
            view.queue = null;
            view.hasLeadership = elected;
            return view;
        });
    }
}
