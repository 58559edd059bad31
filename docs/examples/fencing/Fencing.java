import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;

/**
 * A resource that refuses the leaders of the past.
 *
 * <p>Every request carries the fencing token of the leader that sends it. The resource keeps the greatest token that it
 * has seen beside its data and refuses smaller ones: a leader that was stopped for a minute and goes on does no harm.
 * Token and data are replaced together, so that neither a crash nor a restart forgets the token.
 *
 * <p>{@code java Fencing.java FILE} reads requests from the standard input, one a line: TOKEN VALUE
 */
public class Fencing {
    /** One value and the token of the leader that wrote it, in a file. */
    static class Store {
        private final Path path;
        private long token;

        Store(Path path) throws IOException {
            this.path = path;
            if (Files.exists(path)) {
                token = Long.parseLong(Files.readString(path).split("\n", 2)[0]);
            }
        }

        /** Whether the value was written; false for a token that is smaller than one before. */
        synchronized boolean write(long token, String value) throws IOException {
            if (token < this.token) {
                return false;
            }
            Path next = path.resolveSibling(path.getFileName() + ".new");
            byte[] text = (token + "\n" + value).getBytes(StandardCharsets.UTF_8);
            try (FileChannel file = FileChannel.open(next, StandardOpenOption.CREATE,
                    StandardOpenOption.TRUNCATE_EXISTING, StandardOpenOption.WRITE)) {
                ByteBuffer left = ByteBuffer.wrap(text);
                while (left.hasRemaining()) {
                    file.write(left);
                }
                file.force(true);
            }
            Files.move(next, path, StandardCopyOption.ATOMIC_MOVE);
            this.token = token;
            return true;
        }

        synchronized long token() {
            return token;
        }
    }

    public static void main(String[] arguments) throws IOException {
        Store store = new Store(Path.of(arguments[0]));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.split(" ", 2);
            // A token has at most 19 digits.
            if (!words[0].matches("[0-9]{1,18}|[0-8][0-9]{18}")) {
                System.out.println("refused: no token");
            } else if (store.write(Long.parseLong(words[0]), words.length == 2 ? words[1] : "")) {
                System.out.println("written");
            } else {
                System.out.println("refused: " + words[0] + " is older than " + store.token());
            }
        }
    }
}
