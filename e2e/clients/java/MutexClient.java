import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

/** Holds Curator's InterProcessMutex as soon as it gets it: {@code MutexClient HOSTS PATH ID}. */
final class MutexClient {
    public static void main(String[] args) throws Exception {
        String id = args[2];
        CuratorFramework client = Curator.connect(args[0]);
        InterProcessMutex mutex = new InterProcessMutex(client, args[1]) {
            @Override
            protected byte[] getLockNodeBytes() {
                return id.getBytes(StandardCharsets.UTF_8);
            }
        };
        Say.started(id, client);
        Thread holder = new Thread(() -> {
            try {
                mutex.acquire();
                Say.line("leader", Map.of("id", id));
                Say.STOP.await();
            } catch (Exception e) {
                Say.line("failed", Map.of("error", e.getClass().getSimpleName()));
            }
        });
        holder.setDaemon(true);
        holder.start();
        Say.views(() -> {
            Say.View view = new Say.View();
            for (String node : mutex.getParticipantNodes()) {
                view.queue.add(new String(client.getData().forPath(node), StandardCharsets.UTF_8));
            }
            view.leader = view.queue.isEmpty() ? null : view.queue.get(0);
            view.hasLeadership = mutex.isAcquiredInThisProcess();
            return view;
        });
    }
}
