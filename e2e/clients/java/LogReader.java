import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Reads the log that an application writes to standard error, and passes it on.
 *
 * <p>It has to be there before the application sets up its logging.
 */
final class LogReader extends FilterOutputStream {
    private static final Pattern SESSION =
            Pattern.compile("Session establishment complete on .*session ?id = (0x[0-9a-f]+)");

    /** The ZooKeeper sessions that the log speaks of. */
    final Set<String> sessions = new ConcurrentSkipListSet<>();

    private final Consumer<String> other;
    private final StringBuilder line = new StringBuilder();

    private LogReader(OutputStream out, Consumer<String> other) {
        super(out);
        this.other = other;
    }

    /** Starts to read; {@code other} is shown every line. */
    static LogReader start(Consumer<String> other) {
        LogReader reader = new LogReader(System.err, other);
        System.setErr(new PrintStream(reader, true));
        return reader;
    }

    @Override
    public synchronized void write(int b) throws IOException {
        out.write(b);
        if (b != '\n') {
            line.append((char) b);
            return;
        }
        Matcher session = SESSION.matcher(line);
        if (session.find()) {
            sessions.add(session.group(1));
        }
        other.accept(line.toString());
        line.setLength(0);
    }

    @Override
    public synchronized void write(byte[] bytes, int from, int count) throws IOException {
        for (int i = from; i < from + count; i++) {
            write(bytes[i]);
        }
    }
}
