import java.util.Map;
import org.apache.curator.RetryPolicy;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryForever;

/** What the programs with a Curator recipe share. */
final class Curator {
    private Curator() {}

    /** A started client that reports how its connection fares. */
    static CuratorFramework connect(String hosts) {
        int session = Integer.getInteger("session", 10000);
        RetryPolicy retry = new RetryForever(200);
        CuratorFramework client = CuratorFrameworkFactory.newClient(hosts, session, 5000, retry);
        client.getConnectionStateListenable().addListener(
                (c, state) -> Say.line("connection", Map.of("state", state.toString().toLowerCase())));
        client.start();
        return client;
    }
}
