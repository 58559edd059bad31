import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint;

/**
 * A job manager of a Flink session cluster with ZooKeeper, started by Flink's own main class:
 * {@code FlinkJobManager HOSTS ID PORT}.
 *
 * <p>It says what the dispatcher's log says: whether it was granted leadership, and with what id. The
 * leader is known by that id, and by the ZooKeeper session that the log speaks of.
 */
final class FlinkJobManager {
    private static final Pattern GRANTED =
            Pattern.compile("DispatcherRunner was granted leadership with leader id ([0-9a-f-]{36})");
    private static final Pattern REVOKED =
            Pattern.compile("DispatcherRunner was revoked the leadership");

    public static void main(String[] args) throws Exception {
        Path directory = Files.createTempDirectory("flink-");
        Files.write(directory.resolve("config.yaml"), List.of(
                "jobmanager.rpc.address: 127.0.0.1",
                "jobmanager.rpc.port: 0",
                "rest.address: 127.0.0.1",
                "rest.bind-address: 127.0.0.1",
                "rest.port: " + args[2],
                "jobmanager.memory.process.size: 1024m",
                "io.tmp.dirs: " + directory,
                "high-availability.type: zookeeper",
                "high-availability.zookeeper.quorum: " + args[0],
                "high-availability.zookeeper.client.session-timeout: 6000",
                "high-availability.storageDir: " + directory.resolve("ha").toUri()));
        AtomicReference<String> granted = new AtomicReference<>();
        LogReader log = LogReader.start(line -> {
            Matcher matcher = GRANTED.matcher(line);
            if (matcher.find()) {
                granted.set(matcher.group(1));
            } else if (REVOKED.matcher(line).find()) {
                granted.set(null);
            }
        });
        Say.started(args[1]);
        Thread main = new Thread(() -> StandaloneSessionClusterEntrypoint.main(
                new String[] {"--configDir", directory.toString()}));
        main.setDaemon(true);
        main.start();
        Say.views(() -> {
            Say.View view = new Say.View();
            view.epoch = granted.get();
            view.hasLeadership = view.epoch != null;
            view.sessions.addAll(log.sessions);
            return view;
        });
    }
}
