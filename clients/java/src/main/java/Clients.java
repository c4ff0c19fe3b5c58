import static java.nio.charset.StandardCharsets.UTF_8;

import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.ClientBuilder;
import io.etcd.jetcd.KeyValue;
import io.etcd.jetcd.auth.Permission;
import io.etcd.jetcd.election.LeaderKey;
import io.etcd.jetcd.election.NoLeaderException;
import io.etcd.jetcd.kv.GetResponse;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.DeleteOption;
import io.etcd.jetcd.options.GetOption;
import io.etcd.jetcd.options.LeaseOption;
import io.etcd.jetcd.options.PutOption;
import io.etcd.jetcd.options.WatchOption;
import io.etcd.jetcd.watch.WatchEvent;
import io.etcd.jetcd.watch.WatchResponse;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A client of etcd's API on jetcd. Its argument is an endpoint, such as http://127.0.0.1:2379. For one with https, the file
 * of the CA follows, and perhaps the only check to make.
 *
 * <p>It says {@code ok NAME} for each check and ends with {@code done N}; the first check that fails ends it
 * with 1. Nothing in it knows which server it talks to: what it expects is what etcd answers.
 */
public final class Clients {
    private static final long PATIENCE_S = 20;

    private interface Check {
        void run(Client client) throws Exception;
    }

    private static int done;
    private static String[] arguments;

    /** What the arguments name: an endpoint, and perhaps the CA of its certificate. */
    private static ClientBuilder builder() throws Exception {
        var builder = Client.builder().endpoints(arguments[0]);
        if (arguments.length > 1) {
            builder.sslContext(tls -> tls.trustManager(new File(arguments[1])));
        }
        return builder;
    }

    private static Client of(String user, String password) throws Exception {
        return builder().user(bytes(user)).password(bytes(password)).build();
    }

    public static void main(String[] args) throws Exception {
        arguments = args;
        try (Client client = builder().build()) {
            check(client, "keys", Clients::keys);
            check(client, "ranges", Clients::ranges);
            check(client, "txn", Clients::txn);
            check(client, "watch", Clients::watch);
            check(client, "lease", Clients::lease);
            check(client, "keep_alive", Clients::keepAlive);
            check(client, "compaction", Clients::compaction);
            check(client, "lock", Clients::lock);
            check(client, "election", Clients::election);
            check(client, "maintenance", Clients::maintenance);
            check(client, "members", Clients::members);
            check(client, "users", Clients::users);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
        System.out.println("done " + done);
        // Threads of the library may stay.
        System.exit(0);
    }

    private static void check(Client client, String name, Check check) throws Exception {
        if (arguments.length > 2 && !arguments[2].equals(name)) {
            return;
        }
        get(client.getKVClient().delete(bytes("java/"), DeleteOption.builder().isPrefix(true).build()));
        long begun = System.nanoTime();
        check.run(client);
        done++;
        System.out.println("ok " + name + " (" + (System.nanoTime() - begun) / 1_000_000 + " ms)");
    }

    private static ByteSequence bytes(String text) {
        return ByteSequence.from(text, UTF_8);
    }

    private static <T> T get(CompletableFuture<T> future) throws Exception {
        return future.get(PATIENCE_S, TimeUnit.SECONDS);
    }

    private static <T> T next(BlockingQueue<T> queue) throws Exception {
        T found = queue.poll(PATIENCE_S, TimeUnit.SECONDS);
        if (found == null) {
            throw new TimeoutException("nothing came");
        }
        return found;
    }

    private static void equal(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError("found " + found + ", wanted " + wanted);
        }
    }

    private static void refused(CompletableFuture<?> future, String wanted) throws Exception {
        try {
            Object reply = get(future);
            throw new AssertionError("it succeeded: " + reply);
        } catch (ExecutionException failure) {
            if (!failure.getMessage().contains(wanted)) {
                throw failure;
            }
        }
    }

    private static void put(Client client, String key, String value) throws Exception {
        get(client.getKVClient().put(bytes(key), bytes(value)));
    }

    private static GetResponse read(Client client, String key) throws Exception {
        return get(client.getKVClient().get(bytes(key)));
    }

    private static String value(KeyValue kv) {
        return kv.getValue().toString(UTF_8);
    }

    private static void keys(Client client) throws Exception {
        var kv = client.getKVClient();
        put(client, "java/a", "1");
        var second = get(kv.put(bytes("java/a"), bytes("2"), PutOption.builder().withPrevKV().build()));
        equal(value(second.getPrevKv()), "1");
        var found = read(client, "java/a");
        equal(found.getCount(), 1L);
        equal(value(found.getKvs().get(0)), "2");
        equal(found.getKvs().get(0).getVersion(), 2L);
        equal(found.getHeader().getRevision(), second.getHeader().getRevision());
        var gone = get(kv.delete(bytes("java/a"), DeleteOption.builder().withPrevKV(true).build()));
        equal(gone.getDeleted(), 1L);
        equal(value(gone.getPrevKvs().get(0)), "2");
        refused(kv.put(bytes(""), bytes("1")), "etcdserver: key is not provided");
    }

    private static void ranges(Client client) throws Exception {
        for (int i = 0; i < 5; i++) {
            put(client, "java/" + i, String.valueOf(9 - i));
        }
        var option = GetOption.builder()
                .isPrefix(true)
                .withLimit(2)
                .withSortField(GetOption.SortTarget.VALUE)
                .withSortOrder(GetOption.SortOrder.ASCEND)
                .build();
        var found = get(client.getKVClient().get(bytes("java/"), option));
        equal(found.getCount(), 5L);
        equal(found.isMore(), true);
        equal(found.getKvs().get(0).getKey().toString(UTF_8), "java/4");
    }

    private static void txn(Client client) throws Exception {
        var missing = new Cmp(bytes("java/a"), Cmp.Op.EQUAL, CmpTarget.version(0));
        var won = get(client.getKVClient().txn()
                .If(missing)
                .Then(Op.put(bytes("java/a"), bytes("1"), PutOption.DEFAULT))
                .Else(Op.delete(bytes("java/a"), DeleteOption.DEFAULT))
                .commit());
        equal(won.isSucceeded(), true);
        var lost = get(client.getKVClient().txn()
                .If(missing, new Cmp(bytes("java/a"), Cmp.Op.EQUAL, CmpTarget.value(bytes("1"))))
                .Then(Op.put(bytes("java/a"), bytes("2"), PutOption.DEFAULT))
                .Else(Op.get(bytes("java/a"), GetOption.DEFAULT))
                .commit());
        equal(lost.isSucceeded(), false);
        equal(value(lost.getGetResponses().get(0).getKvs().get(0)), "1");
    }

    private static void watch(Client client) throws Exception {
        var replies = new LinkedBlockingQueue<WatchEvent>();
        var option = WatchOption.builder().isPrefix(true).withPrevKV(true).withCreateNotify(true).build();
        var created = new CompletableFuture<Boolean>();
        var watcher = client.getWatchClient().watch(bytes("java/"), option, (WatchResponse reply) -> {
            if (reply.isCreatedNotify()) {
                created.complete(true);
            }
            replies.addAll(reply.getEvents());
        });
        get(created);
        put(client, "java/a", "1");
        put(client, "java/a", "2");
        get(client.getKVClient().delete(bytes("java/a")));
        var first = next(replies);
        equal(first.getEventType(), WatchEvent.EventType.PUT);
        equal(value(first.getKeyValue()), "1");
        var second = next(replies);
        equal(value(second.getPrevKV()), "1");
        equal(next(replies).getEventType(), WatchEvent.EventType.DELETE);
        watcher.close();
        // From the past.
        var past = WatchOption.builder().withRevision(first.getKeyValue().getModRevision()).build();
        watcher = client.getWatchClient().watch(bytes("java/a"), past, reply -> replies.addAll(reply.getEvents()));
        equal(value(next(replies).getKeyValue()), "1");
        watcher.close();
    }

    private static void lease(Client client) throws Exception {
        var leases = client.getLeaseClient();
        long id = get(leases.grant(100)).getID();
        get(client.getKVClient().put(bytes("java/leased"), bytes("1"), PutOption.builder().withLeaseId(id).build()));
        var left = get(leases.timeToLive(id, LeaseOption.builder().withAttachedKeys().build()));
        equal(left.getGrantedTTL(), 100L);
        equal(left.getKeys().get(0).toString(UTF_8), "java/leased");
        equal(get(leases.keepAliveOnce(id)).getTTL(), 100L);
        get(leases.revoke(id));
        equal(read(client, "java/leased").getCount(), 0L);
        refused(leases.revoke(id), "etcdserver: requested lease not found");
    }

    private static void keepAlive(Client client) throws Exception {
        long id = get(client.getLeaseClient().grant(2)).getID();
        var replies = new LinkedBlockingQueue<LeaseKeepAliveResponse>();
        var keeping = client.getLeaseClient().keepAlive(id, new StreamObserver<>() {
            @Override
            public void onNext(LeaseKeepAliveResponse reply) {
                replies.add(reply);
            }

            @Override
            public void onError(Throwable failure) {}

            @Override
            public void onCompleted() {}
        });
        long begun = System.nanoTime();
        while (System.nanoTime() - begun < 2_500_000_000L) {
            equal(next(replies).getTTL(), 2L);
        }
        keeping.close();
        get(client.getLeaseClient().revoke(id));
    }

    private static void compaction(Client client) throws Exception {
        put(client, "java/a", "1");
        long old = read(client, "java/a").getHeader().getRevision();
        put(client, "java/a", "2");
        get(client.getKVClient().compact(old + 1));
        var past = GetOption.builder().withRevision(old).build();
        refused(client.getKVClient().get(bytes("java/a"), past), "required revision has been compacted");
    }

    private static void lock(Client client) throws Exception {
        long first = get(client.getLeaseClient().grant(100)).getID();
        long second = get(client.getLeaseClient().grant(100)).getID();
        var locks = client.getLockClient();
        var held = get(locks.lock(bytes("java/lock"), first)).getKey();
        equal(held.toString(UTF_8).startsWith("java/lock/"), true);
        var waiting = locks.lock(bytes("java/lock"), second);
        try {
            waiting.get(200, TimeUnit.MILLISECONDS);
            throw new AssertionError("two hold the lock");
        } catch (TimeoutException expected) {
            // The first has it.
        }
        get(locks.unlock(held));
        var other = get(waiting).getKey();
        equal(other.equals(held), false);
        // It goes with its lease, too.
        get(client.getLeaseClient().revoke(second));
        get(locks.unlock(get(locks.lock(bytes("java/lock"), first)).getKey()));
        get(client.getLeaseClient().revoke(first));
    }

    private static void election(Client client) throws Exception {
        long id = get(client.getLeaseClient().grant(100)).getID();
        var elections = client.getElectionClient();
        var name = bytes("java/election");
        LeaderKey leader = get(elections.campaign(name, id, bytes("first"))).getLeader();
        equal(leader.getLease(), id);
        equal(value(get(elections.leader(name)).getKv()), "first");
        get(elections.proclaim(leader, bytes("again")));
        equal(value(get(elections.leader(name)).getKv()), "again");
        get(elections.resign(leader));
        try {
            get(elections.leader(name));
            throw new AssertionError("there is still a leader");
        } catch (ExecutionException expected) {
            equal(expected.getCause().getClass(), NoLeaderException.class);
        }
        get(client.getLeaseClient().revoke(id));
    }

    private static void maintenance(Client client) throws Exception {
        var maintenance = client.getMaintenanceClient();
        equal(get(maintenance.listAlarms()).getAlarms().size(), 0);
        var file = new ByteArrayOutputStream();
        long size = get(maintenance.snapshot(file));
        equal(size, (long) file.size());
        equal(size % 512, 32L);
    }

    private static void members(Client client) throws Exception {
        var members = get(client.getClusterClient().listMember()).getMembers();
        equal(members.size(), 1);
        equal(members.get(0).getName().isEmpty(), false);
        refused(client.getClusterClient().removeMember(7), "etcdserver: member not found");
    }

    private static void users(Client client) throws Exception {
        var auth = client.getAuthClient();
        get(auth.userAdd(bytes("root"), bytes("secret")));
        get(auth.userGrantRole(bytes("root"), bytes("root")));
        get(auth.userAdd(bytes("ann"), bytes("password of ann")));
        get(auth.roleAdd(bytes("java")));
        var all = Permission.Type.READWRITE;
        get(auth.roleGrantPermission(bytes("java"), bytes("java/own/"), bytes("java/own0"), all));
        get(auth.userGrantRole(bytes("ann"), bytes("java")));
        get(auth.authEnable());
        var own = bytes("java/own/a");
        refused(client.getKVClient().put(own, bytes("1")), "etcdserver: user name is empty");
        try (Client ann = of("ann", "password of ann")) {
            put(ann, "java/own/a", "1");
            equal(value(read(ann, "java/own/a").getKvs().get(0)), "1");
            refused(ann.getKVClient().put(bytes("java/other"), bytes("1")), "etcdserver: permission denied");
            refused(ann.getAuthClient().userList(), "etcdserver: permission denied");
        }
        try (Client root = of("root", "secret")) {
            equal(get(root.getAuthClient().userList()).getUsers().size(), 2);
            get(root.getAuthClient().authDisable());
        }
        put(client, "java/other", "1");
        get(auth.userDelete(bytes("ann")));
        get(auth.userDelete(bytes("root")));
        get(auth.roleDelete(bytes("java")));
    }
}
