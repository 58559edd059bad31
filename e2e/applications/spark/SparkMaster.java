import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.deploy.master.Master;

/**
 * A master of a Spark standalone cluster that recovers from ZooKeeper, started by Spark's own main
 * class: {@code SparkMaster HOSTS DIRECTORY ID PORT}.
 *
 * <p>It says whether the master's own status page calls it alive, and which ZooKeeper sessions its
 * log speaks of: the candidates of this election have no other name.
 */
final class SparkMaster {
    private static final Pattern STATUS = Pattern.compile("\"status\"\\s*:\\s*\"(\\w+)\"");
    private static final Pattern SESSION = Pattern.compile("session ?id = (0x[0-9a-f]+)");

    public static void main(String[] args) throws Exception {
        String id = args[2];
        int port = Integer.parseInt(args[3]);
        System.setProperty("spark.deploy.recoveryMode", "ZOOKEEPER");
        System.setProperty("spark.deploy.zookeeper.url", args[0]);
        System.setProperty("spark.deploy.zookeeper.dir", args[1]);
        Set<String> sessions = new ConcurrentSkipListSet<>();
        System.setErr(new PrintStream(new Lines(System.err, line -> {
            Matcher matcher = SESSION.matcher(line);
            if (matcher.find()) {
                sessions.add(matcher.group(1));
            }
        }), true));
        Say.started(id);
        String page = "http://127.0.0.1:" + (port + 1000) + "/json/";
        Thread master = new Thread(() -> Master.main(new String[] {
            "--host", "127.0.0.1", "--port", args[3], "--webui-port", String.valueOf(port + 1000),
        }));
        master.setDaemon(true);
        master.start();

        HttpClient http = HttpClient.newHttpClient();
        Say.views(() -> {
            HttpRequest request = HttpRequest.newBuilder(URI.create(page)).build();
            String body = http.send(request, HttpResponse.BodyHandlers.ofString()).body();
            Matcher status = STATUS.matcher(body);
            Say.View view = new Say.View();
            view.hasLeadership = status.results().anyMatch(s -> s.group(1).equals("ALIVE"));
            view.sessions.addAll(sessions);
            return view;
        });
    }

    /** Passes everything on and shows each line to somebody. */
    private static final class Lines extends FilterOutputStream {
        private final Consumer<String> reader;
        private final StringBuilder line = new StringBuilder();

        Lines(OutputStream out, Consumer<String> reader) {
            super(out);
            this.reader = reader;
        }

        @Override
        public synchronized void write(int b) throws IOException {
            out.write(b);
            if (b == '\n') {
                reader.accept(line.toString());
                line.setLength(0);
            } else {
                line.append((char) b);
            }
        }

        @Override
        public synchronized void write(byte[] bytes, int from, int count) throws IOException {
            for (int i = from; i < from + count; i++) {
                write(bytes[i]);
            }
        }
    }
}
