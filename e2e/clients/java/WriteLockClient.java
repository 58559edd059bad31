import java.util.List;
import java.util.Map;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

/** Holds the lock of ZooKeeper's own recipe as soon as it gets it: {@code WriteLockClient HOSTS PATH ID}. */
final class WriteLockClient {
    public static void main(String[] args) throws Exception {
        String id = args[2];
        ZooKeeper client = Recipes.connect(args[0], args[1]);
        WriteLock lock = new WriteLock(client, args[1], ZooDefs.Ids.OPEN_ACL_UNSAFE, new LockListener() {
            @Override
            public void lockAcquired() {
                Say.line("leader", Map.of("id", id));
            }

            @Override
            public void lockReleased() {
            }
        });
        Say.started(id, client);
        lock.lock();
        Say.views(() -> {
            Say.View view = new Say.View();
            // Its nodes say nothing but the session.
            view.sessions.addAll(List.of("0x" + Long.toHexString(client.getSessionId())));
            view.queue = null;
            view.hasLeadership = lock.isOwner();
            return view;
        });
    }
}
