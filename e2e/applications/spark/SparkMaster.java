import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
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

    public static void main(String[] args) throws Exception {
        String page = String.valueOf(Integer.parseInt(args[3]) + 1000);
        System.setProperty("spark.deploy.recoveryMode", "ZOOKEEPER");
        System.setProperty("spark.deploy.zookeeper.url", args[0]);
        System.setProperty("spark.deploy.zookeeper.dir", args[1]);
        LogReader log = LogReader.start(line -> { });
        Say.started(args[2]);
        Thread master = new Thread(() -> Master.main(new String[] {
            "--host", "127.0.0.1", "--port", args[3], "--webui-port", page,
        }));
        master.setDaemon(true);
        master.start();

        HttpClient http = HttpClient.newHttpClient();
        URI status = URI.create("http://127.0.0.1:" + page + "/json/");
        Say.views(() -> {
            HttpRequest request = HttpRequest.newBuilder(status).build();
            String body = http.send(request, HttpResponse.BodyHandlers.ofString()).body();
            Matcher found = STATUS.matcher(body);
            Say.View view = new Say.View();
            view.hasLeadership = found.results().anyMatch(s -> s.group(1).equals("ALIVE"));
            view.sessions.addAll(log.sessions);
            return view;
        });
    }
}
