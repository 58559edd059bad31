import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import javax.management.ObjectName;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.common.Node;

/**
 * A Kafka broker with ZooKeeper, started by Kafka's own main class: {@code KafkaBroker HOSTS ID PORT}.
 *
 * <p>It says whom the broker tells its clients to be the controller and which brokers there are, and
 * whether the broker's own metrics say that it is the controller itself.
 */
final class KafkaBroker {
    public static void main(String[] args) throws Exception {
        String id = args[1];
        String address = "127.0.0.1:" + args[2];
        Path directory = Files.createTempDirectory("kafka-" + id + "-");
        Path properties = directory.resolve("server.properties");
        Files.write(properties, List.of(
                "broker.id=" + id,
                "zookeeper.connect=" + args[0],
                "zookeeper.session.timeout.ms=6000",
                "zookeeper.connection.timeout.ms=30000",
                "listeners=PLAINTEXT://" + address,
                "log.dirs=" + directory.resolve("data"),
                "num.network.threads=1",
                "num.io.threads=2",
                "background.threads=2",
                "num.recovery.threads.per.data.dir=1",
                "log.cleaner.dedupe.buffer.size=2097152"));
        Say.started(id);
        // The main class waits for the end of the broker.
        Thread broker = new Thread(() -> kafka.Kafka.main(new String[] {properties.toString()}));
        broker.setDaemon(true);
        broker.start();

        ObjectName count = new ObjectName(
                "kafka.controller:type=KafkaController,name=ActiveControllerCount");
        Admin admin = Admin.create(Map.of(
                "bootstrap.servers", address,
                "default.api.timeout.ms", "5000",
                "request.timeout.ms", "2000"));
        Say.views(() -> {
            Say.View view = new Say.View();
            Object active = ManagementFactory.getPlatformMBeanServer().getAttribute(count, "Value");
            view.hasLeadership = ((Number) active).intValue() == 1;
            DescribeClusterResult cluster = admin.describeCluster();
            Node controller = cluster.controller().get(5, TimeUnit.SECONDS);
            if (controller != null && !controller.isEmpty()) {
                view.leader = controller.idString();
                view.queue.add(view.leader);
                for (Node node : cluster.nodes().get(5, TimeUnit.SECONDS)) {
                    if (!node.idString().equals(view.leader)) {
                        view.queue.add(node.idString());
                    }
                }
            }
            return view;
        });
    }
}
