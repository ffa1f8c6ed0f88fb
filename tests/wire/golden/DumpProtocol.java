import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.annotation.Annotation;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collection;
import java.util.Comparator;
import java.util.Enumeration;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;

/**
 * Writes down what RocketMQ's own classes say of the protocol: codes, header fields with presence and type, and
 * the JSON of bodies whose every property is filled. See regenerate.sh.
 *
 *   DumpProtocol dump JAR...    CODE / LANGUAGE / FIELD / BODY lines
 *   DumpProtocol reread         "class json" lines on stdin -> the same through Java: parsed and written again
 */
public class DumpProtocol {
    static final List<String> BODIES = Arrays.asList(
        "TopicRouteData", "HeartbeatData", "GetConsumerListByGroupResponseBody", "LockBatchRequestBody",
        "LockBatchResponseBody", "UnlockBatchRequestBody", "ConsumerOffsetSerializeWrapper", "ResetOffsetBody",
        "ResetOffsetBodyForC", "GetConsumerStatusBody", "QueryCorrectionOffsetBody", "QueryAssignmentRequestBody",
        "QueryAssignmentResponseBody", "SetMessageRequestModeRequestBody", "MessageRequestModeSerializeWrapper",
        "ClusterInfo", "ConsumeStats", "ConsumeStatsList", "TopicStatsTable", "QueryConsumeTimeSpanBody",
        "QueryConsumeQueueResponseBody", "BrokerStatsData", "KVTable", "TopicList", "TopicConfig",
        "TopicConfigSerializeWrapper", "RegisterBrokerBody", "CreateTopicListRequestBody", "GroupList",
        "SubscriptionGroupConfig", "SubscriptionGroupWrapper", "ConsumerConnection", "ProducerConnection",
        "ProducerTableInfo", "ConsumerRunningInfo", "ConsumeMessageDirectlyResult", "BatchAckMessageRequestBody",
        "QuerySubscriptionResponseBody", "CheckClientRequestBody");

    public static void main(String[] args) throws Exception {
        if (args[0].equals("reread")) {
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line; (line = in.readLine()) != null; ) {
                int blank = line.indexOf(' ');
                Class<?> type = Class.forName(line.substring(0, blank));
                try {
                    Object value = invokeStatic("fromJson", line.substring(blank + 1), type);
                    System.out.println(type.getName() + " " + json(value));
                } catch (Throwable failure) {
                    System.out.println(type.getName() + " FAILED " + failure);
                }
            }
            return;
        }
        for (String jar : Arrays.copyOfRange(args, 1, args.length)) {
            for (Class<?> type : classes(jar)) {
                dump(type);
            }
        }
    }

    static List<Class<?>> classes(String path) throws Exception {
        List<Class<?>> found = new ArrayList<>();
        try (JarFile jar = new JarFile(path)) {
            for (Enumeration<JarEntry> entries = jar.entries(); entries.hasMoreElements(); ) {
                String name = entries.nextElement().getName();
                if (name.endsWith(".class") && name.startsWith("org/apache/rocketmq/")) {
                    try {
                        found.add(Class.forName(name.substring(0, name.length() - 6).replace('/', '.')));
                    } catch (Throwable notLoadable) {
                        // needs something optional; not part of the protocol
                    }
                }
            }
        }
        found.sort(Comparator.comparing((Class<?> type) -> type.getName()));
        return found;
    }

    static void dump(Class<?> type) throws Exception {
        String name = type.getSimpleName();
        if (name.equals("RequestCode") || name.equals("ResponseCode") || name.equals("RemotingSysResponseCode")) {
            for (Field field : type.getFields()) {
                System.out.println("CODE " + name + " " + field.getName() + " " + field.get(null));
            }
        } else if (name.equals("LanguageCode")) {
            for (Object language : type.getEnumConstants()) {
                System.out.println("CODE LanguageCode " + language + " " + ((Enum<?>) language).ordinal());
            }
        } else if (type.getName().contains(".header.") && name.matches(".*Header(V2)?")) {
            for (Class<?> level = type; level != null && level != Object.class; level = level.getSuperclass()) {
                for (Field field : level.getDeclaredFields()) {
                    if (!Modifier.isStatic(field.getModifiers()) && !field.getName().startsWith("this")) {
                        System.out.println("FIELD " + name + " " + field.getName() + " "
                            + field.getType().getSimpleName() + " " + (required(field) ? "required" : "optional"));
                    }
                }
            }
        } else if (BODIES.contains(name) && !type.getName().contains(".rocketmq.client.")) {
            System.out.println("BODY " + type.getName() + " " + json(fill(type, name, 0)));
        }
    }

    static boolean required(Field field) {
        for (Annotation annotation : field.getAnnotations()) {
            if (annotation.annotationType().getSimpleName().equals("CFNotNull")) {
                return true;
            }
        }
        return false;
    }

    static String json(Object value) throws Exception {
        return (String) invokeStatic("toJson", value, false);
    }

    static Object invokeStatic(String name, Object... arguments) throws Exception {
        Class<?> serializable = Class.forName("org.apache.rocketmq.remoting.protocol.RemotingSerializable");
        for (Method method : serializable.getMethods()) {
            if (method.getName().equals(name) && Modifier.isStatic(method.getModifiers())
                && method.getParameterCount() == arguments.length && method.getParameterTypes()[0] != byte[].class) {
                return method.invoke(null, arguments);
            }
        }
        throw new IllegalStateException(name);
    }

    static Object make(Class<?> type, int depth) throws Exception {
        Constructor<?>[] constructors = type.getDeclaredConstructors();
        Arrays.sort(constructors, Comparator.comparing((Constructor<?> one) -> one.getParameterCount()));
        Constructor<?> shortest = constructors[0];
        shortest.setAccessible(true);
        List<Object> arguments = new ArrayList<>();
        for (Type argument : shortest.getGenericParameterTypes()) {
            arguments.add(fill(argument, "Argument", depth + 1));
        }
        return shortest.newInstance(arguments.toArray());
    }

    /** A value of the type with every property set, the same on every run. */
    static Object fill(Type type, String name, int depth) throws Exception {
        if (type instanceof ParameterizedType) {
            Type[] of = ((ParameterizedType) type).getActualTypeArguments();
            Class<?> raw = (Class<?>) ((ParameterizedType) type).getRawType();
            if (Map.class.isAssignableFrom(raw)) {
                Map<Object, Object> map = raw == TreeMap.class ? new TreeMap<>() : raw.isInterface()
                    ? new ConcurrentHashMap<>() : (Map<Object, Object>) raw.getConstructor().newInstance();
                map.put(fill(of[0], name, depth + 1), fill(of[1], name, depth + 1));
                return map;
            }
            Collection<Object> many = raw == TreeSet.class ? new TreeSet<>() : raw == List.class
                ? new ArrayList<>() : raw.isInterface() ? new LinkedHashSet<>()
                : (Collection<Object>) raw.getConstructor().newInstance();
            many.add(fill(of[0], name, depth + 1));
            return many;
        }
        Class<?> wanted = (Class<?>) type;
        if (wanted == String.class) {
            return name + " \u6587\"";
        } else if (wanted == int.class || wanted == Integer.class) {
            return -7 - depth;
        } else if (wanted == long.class || wanted == Long.class) {
            return 1700000000000L + depth;
        } else if (wanted == double.class) {
            return 1.5;
        } else if (wanted == boolean.class || wanted == Boolean.class) {
            return true;
        } else if (wanted == long[].class) {
            return new long[] {1000, 5000};
        } else if (wanted == AtomicLong.class) {
            return new AtomicLong(42);
        } else if (wanted == BitSet.class) {
            return BitSet.valueOf(new long[] {0b1_0000_0101});
        } else if (wanted == Properties.class) {
            Properties properties = new Properties();
            properties.put("PROP_CONSUME_TYPE", "CONSUME_PASSIVELY");
            properties.put("PROP_CONSUMER_START_TIMESTAMP", 1700000000000L);
            return properties;
        } else if (wanted.isEnum()) {
            Object[] constants = wanted.getEnumConstants();
            return constants[constants.length - 1];
        }
        Object made = make(wanted, depth);
        Method[] methods = wanted.getMethods();
        Arrays.sort(methods, Comparator.comparing(Method::getName));
        for (Method method : methods) {
            if (method.getName().matches("set[A-Z].*") && method.getParameterCount() == 1
                && !method.getName().equals("setTopicMessageType")) {
                String property = method.getName().substring(3);
                method.invoke(made, fill(method.getGenericParameterTypes()[0], property, depth + 1));
            }
        }
        return made;
    }
}
