import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Runs the main methods of other classes, one after the other, in one JVM: a start takes seconds.
 *
 * A line of standard input is one command, words in Base64 with spaces between them: a class path,
 * the name of a class, what it reads from its standard input, and its arguments.  A line of
 * standard output is its result: an exit code, and in Base64 what it printed, and its errors.
 * Every class path has a loader of its own, so that several versions of one library fit in here.
 */
public final class Driver {
    private static final Map<String, ClassLoader> LOADERS = new HashMap<>();

    /** What a program's call of exit becomes. */
    private static final class Ended extends Error {
        Ended() {
            super("the program has ended", null, false, false);
        }
    }

    /** Standard output or error of all programs: some keep the first one that they are given. */
    private static final class Switch extends OutputStream {
        private volatile ByteArrayOutputStream target = new ByteArrayOutputStream();

        @Override
        public void write(int each) {
            target.write(each);
        }

        @Override
        public void write(byte[] data, int start, int size) {
            target.write(data, start, size);
        }

        byte[] take() {
            byte[] taken = target.toByteArray();
            target = new ByteArrayOutputStream();
            return taken;
        }
    }

    private static final Switch OUT = new Switch();
    private static final Switch ERR = new Switch();
    private static Integer exitCode;
    private static final List<Runnable> HOOKS = new ArrayList<>(); // what a program does when it ends

    private Driver() { }

    public static void main(String[] none) throws IOException {
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            List<String> words = new ArrayList<>();
            for (String word : line.split(" ", -1)) {
                words.add(new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8));
            }
            answers.println(answer(words));
            answers.flush();
        }
    }

    private static String answer(List<String> words) {
        OUT.take(); // what threads of the program before have said since
        ERR.take();
        System.setIn(new ByteArrayInputStream(words.get(2).getBytes(StandardCharsets.UTF_8)));
        int code = run(words.get(0), words.get(1), words.subList(3, words.size()));
        System.out.flush();
        System.err.flush();
        Base64.Encoder encoder = Base64.getEncoder();
        return code + " " + encoder.encodeToString(OUT.take())
            + " " + encoder.encodeToString(ERR.take());
    }

    private static int run(String path, String name, List<String> arguments) {
        exitCode = null;
        HOOKS.clear();
        try {
            ClassLoader loader = loader(path);
            Thread.currentThread().setContextClassLoader(loader);
            Method main = loader.loadClass(name).getMethod("main", String[].class);
            main.invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException error) {
            if (exitCode == null) {
                error.getCause().printStackTrace();
                return 1;
            }
        } catch (ReflectiveOperationException | MalformedURLException error) {
            error.printStackTrace();
            return 1;
        } finally {
            for (Runnable each : new ArrayList<>(HOOKS)) {
                try {
                    each.run();
                } catch (Ended already) {
                    continue;
                }
            }
        }
        return exitCode == null ? 0 : exitCode;
    }

    private static ClassLoader loader(String path)
            throws MalformedURLException, ReflectiveOperationException {
        ClassLoader known = LOADERS.get(path);
        if (known == null) {
            List<URL> found = new ArrayList<>();
            for (String folder : path.split(File.pathSeparator)) {
                found.add(new File(folder).toURI().toURL());
                File[] jars = new File(folder).listFiles((place, name) -> name.endsWith(".jar"));
                Arrays.sort(jars);
                for (File jar : jars) {
                    found.add(jar.toURI().toURL());
                }
            }
            known = new URLClassLoader(
                found.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
            noteExits(known);
            LOADERS.put(path, known);
        }
        return known;
    }

    /** Have Kafka's own way to end a process end the program only; the first exit counts. */
    private static void noteExits(ClassLoader loader) throws ReflectiveOperationException {
        Class<?> exit = loader.loadClass("org.apache.kafka.common.utils.Exit");
        Class<?> procedure = loader.loadClass("org.apache.kafka.common.utils.Exit$Procedure");
        Object note = Proxy.newProxyInstance(
            loader, new Class<?>[] {procedure}, (self, method, given) -> {
                if (exitCode == null) {
                    exitCode = (Integer) given[0];
                }
                throw new Ended();
            });
        exit.getMethod("setExitProcedure", procedure).invoke(null, note);
        exit.getMethod("setHaltProcedure", procedure).invoke(null, note);
        try {
            Class<?> adder = loader.loadClass("org.apache.kafka.common.utils.Exit$ShutdownHookAdder");
            Object ours = Proxy.newProxyInstance(
                loader, new Class<?>[] {adder}, (self, method, given) -> {
                    HOOKS.add((Runnable) given[1]);
                    return null;
                });
            exit.getMethod("setShutdownHookAdder", adder).invoke(null, ours);
        } catch (ClassNotFoundException older) {
            return; // clients before 2.4 add no hooks
        }
    }
}
