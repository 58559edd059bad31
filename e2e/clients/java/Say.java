import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** What the Java programs share: JSON lines on standard output, and a clean stop. */
final class Say {
    /** Counted down by SIGTERM. */
    static final CountDownLatch STOP = new CountDownLatch(1);

    private Say() {}

    /** Prints one line with the process id, as every client program does first. */
    static void started(String id, AutoCloseable... toClose) {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            STOP.countDown();
            for (AutoCloseable one : toClose) {
                try {
                    one.close();
                } catch (Exception e) {
                    // The session's end removes its nodes anyway.
                }
            }
        }));
        line("started", Map.of("pid", ProcessHandle.current().pid(), "id", id));
    }

    /** What a candidate's own library or application says. */
    static final class View {
        String leader;
        /** Everybody in order, the leader first; null where that is not known. */
        List<String> queue = new ArrayList<>();
        boolean hasLeadership;
        /** The candidate's own sessions, where they are all that tells who it is. */
        final List<String> sessions = new ArrayList<>();
        /** The number or id of the leader's term, where the candidate knows one of its own. */
        String epoch;

        String json() {
            return "\"leader\": " + value(leader) + ", \"queue\": " + value(queue)
                    + ", \"hasLeadership\": " + hasLeadership
                    + (sessions.isEmpty() ? "" : ", \"sessions\": " + value(sessions))
                    + (epoch == null ? "" : ", \"epoch\": " + value(epoch));
        }
    }

    /** Prints the view whenever it changed, until the process ends. */
    static void views(Callable<View> look) throws InterruptedException {
        String last = "";
        do {
            String now;
            try {
                now = look.call().json();
            } catch (Exception e) {
                now = "\"error\": " + value(e.getClass().getSimpleName());
            }
            if (!now.equals(last)) {
                last = now;
                raw("view", now);
            }
        } while (!STOP.await(300, TimeUnit.MILLISECONDS));
    }

    static void line(String event, Map<String, ?> fields) {
        StringBuilder text = new StringBuilder();
        for (Map.Entry<String, ?> field : fields.entrySet()) {
            text.append(text.length() == 0 ? "" : ", ");
            text.append(value(field.getKey())).append(": ").append(value(field.getValue()));
        }
        raw(event, text.toString());
    }

    private static synchronized void raw(String event, String fields) {
        System.out.printf("{\"time\": %.4f, \"event\": \"%s\", %s}%n",
                System.currentTimeMillis() / 1000.0, event, fields);
        System.out.flush();
    }

    private static String value(Object o) {
        if (o == null) {
            return "null";
        }
        if (o instanceof Number || o instanceof Boolean) {
            return o.toString();
        }
        if (o instanceof List<?> list) {
            StringBuilder text = new StringBuilder("[");
            for (Object item : list) {
                text.append(text.length() == 1 ? "" : ", ").append(value(item));
            }
            return text.append("]").toString();
        }
        StringBuilder text = new StringBuilder("\"");
        for (char c : o.toString().toCharArray()) {
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < 0x20) {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        return text.append("\"").toString();
    }
}
