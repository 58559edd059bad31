import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.solr.client.solrj.embedded.JettyConfig;
import org.apache.solr.client.solrj.embedded.JettySolrRunner;
import org.apache.solr.cloud.Overseer;

/**
 * A node of SolrCloud in the web server that it comes with: {@code SolrNode HOSTS ID PORT}, where the
 * id is the name that Solr gives to the node at this port.
 *
 * <p>It says whom the status of the overseer names, and whether the overseer works in this process.
 */
final class SolrNode {
    private static final Pattern LEADER = Pattern.compile("\"leader\"\\s*:\\s*\"([^\"]+)\"");

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[2]);
        Path home = Files.createTempDirectory("solr-");
        Files.writeString(home.resolve("solr.xml"), String.join("\n",
                "<solr><solrcloud>",
                "<str name=\"host\">127.0.0.1</str>",
                "<int name=\"hostPort\">" + port + "</int>",
                "<str name=\"hostContext\">solr</str>",
                "<int name=\"zkClientTimeout\">6000</int>",
                "</solrcloud></solr>"));
        System.setProperty("zkHost", args[0]);
        System.setProperty("solr.log.dir", home.toString());
        Say.started(args[1]);
        JettyConfig config = JettyConfig.builder().setContext("/solr").setPort(port).build();
        AtomicReference<JettySolrRunner> node = new AtomicReference<>();
        Thread server = new Thread(() -> {
            // A node whose first session with ZooKeeper fails ends, and whatever runs it starts it again.
            while (node.get() == null) {
                JettySolrRunner next = new JettySolrRunner(home.toString(), config);
                try {
                    next.start();
                    if (next.getCoreContainer() != null) {
                        node.set(next);
                    } else {
                        next.stop();
                    }
                } catch (Exception e) {
                    Say.line("failed", Map.of("error", e.toString()));
                }
            }
        });
        server.setDaemon(true);
        server.start();

        HttpClient http = HttpClient.newHttpClient();
        URI page = URI.create("http://127.0.0.1:" + port
                + "/solr/admin/collections?action=OVERSEERSTATUS&wt=json");
        Say.views(() -> {
            HttpRequest request = HttpRequest.newBuilder(page).build();
            String body = http.send(request, HttpResponse.BodyHandlers.ofString()).body();
            Matcher leader = LEADER.matcher(body);
            Overseer overseer = node.get().getCoreContainer().getZkController().getOverseer();
            Say.View view = new Say.View();
            view.leader = leader.find() ? leader.group(1) : null;
            view.queue = null;
            view.hasLeadership = overseer.getUpdaterThread() != null
                    && overseer.getUpdaterThread().isAlive();
            return view;
        });
    }
}
