// A client of etcd's API on etcd's own client for Go, with its concurrency package.
//
//	go run . http://127.0.0.1:2379
//	go run . https://127.0.0.1:2379 CA-FILE [CHECK]
//
// It says `ok NAME` for each check and ends with `done N`; the first check that fails ends it with 1. Nothing in
// it knows which server it talks to: what it expects is what etcd answers.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

const patience = 30 * time.Second

// A client, and what a check does with it. A check panics, by must and equal, when it fails.
type run struct {
	context.Context
	*clientv3.Client
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Panicf("it failed: %v", err)
	}
	return value
}

func check(err error) {
	must(0, err)
}

func equal[T comparable](found, wanted T) {
	if found != wanted {
		log.Panicf("found %v, wanted %v", found, wanted)
	}
}

func refused(err, wanted error) {
	if !errors.Is(err, wanted) {
		log.Panicf("found the error %v, wanted %v", err, wanted)
	}
}

// What the arguments name: an endpoint, and perhaps the CA of its certificate. Empty names are nobody's.
func connect(user, password string) (*clientv3.Client, error) {
	config := clientv3.Config{
		Endpoints:   os.Args[1:2],
		DialTimeout: patience,
		Username:    user,
		Password:    password,
		// Refusals are expected here, and are no news.
		Logger: zap.NewNop(),
	}
	if len(os.Args) > 2 {
		authorities := x509.NewCertPool()
		equal(authorities.AppendCertsFromPEM(must(os.ReadFile(os.Args[2]))), true)
		config.TLS = &tls.Config{RootCAs: authorities}
	}
	return clientv3.New(config)
}

func main() {
	log.SetFlags(0)
	client := must(connect("", ""))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := run{ctx, client}
	checks := []struct {
		name string
		call func(run)
	}{
		{"keys", keys},
		{"ranges", ranges},
		{"txn", txn},
		{"compaction", compaction},
		{"watch_prefix", watchPrefix},
		{"watch_history", watchHistory},
		{"watch_progress", watchProgress},
		{"watch_compacted", watchCompacted},
		{"lease", lease},
		{"keep_alive", keepAlive},
		{"session", session},
		{"mutex", mutex},
		{"election", election},
		{"stm", stm},
		{"maintenance", maintenance},
		{"snapshot", snapshot},
		{"members", members},
		{"errors", refusals},
		{"users", users},
	}
	done := 0
	for _, one := range checks {
		if len(os.Args) > 3 && os.Args[3] != one.name {
			continue
		}
		done++
		check(drop(r, "go/"))
		begun := time.Now()
		one.call(r)
		fmt.Printf("ok %s (%d ms)\n", one.name, time.Since(begun).Milliseconds())
	}
	check(client.Close())
	fmt.Printf("done %d\n", done)
}

func drop(r run, prefix string) error {
	_, err := r.Delete(r, prefix, clientv3.WithPrefix())
	return err
}

func keys(r run) {
	first := must(r.Put(r, "go/a", "1"))
	second := must(r.Put(r, "go/a", "2", clientv3.WithPrevKV()))
	equal(string(second.PrevKv.Value), "1")
	equal(second.PrevKv.ModRevision, first.Header.Revision)
	equal(second.Header.Revision, first.Header.Revision+1)
	found := must(r.Get(r, "go/a"))
	equal(found.Count, 1)
	equal(string(found.Kvs[0].Value), "2")
	equal(found.Kvs[0].Version, 2)
	old := must(r.Get(r, "go/a", clientv3.WithRev(first.Header.Revision)))
	equal(string(old.Kvs[0].Value), "1")
	gone := must(r.Delete(r, "go/a", clientv3.WithPrevKV()))
	equal(gone.Deleted, 1)
	equal(string(gone.PrevKvs[0].Value), "2")
	equal(must(r.Get(r, "go/a")).Count, 0)
}

func ranges(r run) {
	for i := range 5 {
		must(r.Put(r, fmt.Sprintf("go/%d", i), strconv.Itoa(9-i)))
	}
	all := must(r.Get(r, "go/", clientv3.WithPrefix()))
	equal(all.Count, 5)
	equal(string(all.Kvs[0].Key), "go/0")
	sorted := must(r.Get(r, "go/", clientv3.WithPrefix(), clientv3.WithLimit(2),
		clientv3.WithSort(clientv3.SortByValue, clientv3.SortAscend)))
	equal(string(sorted.Kvs[0].Key), "go/4")
	equal(len(sorted.Kvs), 2)
	equal(sorted.More, true)
	equal(must(r.Get(r, "go/2", clientv3.WithFromKey(), clientv3.WithCountOnly())).Count >= 3, true)
	newest := must(r.Get(r, "go/", clientv3.WithLastRev()...))
	equal(string(newest.Kvs[0].Key), "go/4")
	stale := must(r.Get(r, "go/", clientv3.WithPrefix(), clientv3.WithSerializable(), clientv3.WithKeysOnly()))
	equal(len(stale.Kvs[0].Value), 0)
}

func txn(r run) {
	missing := clientv3.Compare(clientv3.CreateRevision("go/a"), "=", 0)
	won := must(r.Txn(r).If(missing).
		Then(clientv3.OpPut("go/a", "1"), clientv3.OpGet("go/a")).
		Else(clientv3.OpDelete("go/a")).Commit())
	equal(won.Succeeded, true)
	equal(string(won.Responses[1].GetResponseRange().Kvs[0].Value), "1")
	lost := must(r.Txn(r).If(missing).
		Then(clientv3.OpPut("go/a", "2")).
		Else(clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.Value("go/a"), "=", "1")},
			[]clientv3.Op{clientv3.OpPut("go/b", "3")},
			nil,
		)).Commit())
	equal(lost.Succeeded, false)
	equal(lost.Responses[0].GetResponseTxn().Succeeded, true)
	equal(string(must(r.Get(r, "go/b")).Kvs[0].Value), "3")
	_, err := r.Txn(r).Then(clientv3.OpPut("go/a", "1"), clientv3.OpPut("go/a", "2")).Commit()
	refused(err, rpctypes.ErrDuplicateKey)
}

func compaction(r run) {
	old := must(r.Put(r, "go/a", "1")).Header.Revision
	now := must(r.Put(r, "go/a", "2")).Header.Revision
	must(r.Compact(r, now, clientv3.WithCompactPhysical()))
	_, err := r.Get(r, "go/a", clientv3.WithRev(old))
	refused(err, rpctypes.ErrCompacted)
	_, err = r.Get(r, "go/a", clientv3.WithRev(now+1000))
	refused(err, rpctypes.ErrFutureRev)
}

// The next events of a watch.
func events(r run, replies clientv3.WatchChan, count int) []*clientv3.Event {
	var found []*clientv3.Event
	for len(found) < count {
		reply, open := <-replies
		equal(open, true)
		check(reply.Err())
		found = append(found, reply.Events...)
	}
	equal(len(found), count)
	return found
}

func watchPrefix(r run) {
	ctx, cancel := context.WithCancel(r)
	defer cancel()
	replies := r.Watch(ctx, "go/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	equal((<-replies).Created, true)
	must(r.Put(r, "go/a", "1"))
	must(r.Put(r, "go/a", "2"))
	must(r.Put(r, "other", "1"))
	must(r.Delete(r, "go/a"))
	found := events(r, replies, 3)
	equal(found[0].IsCreate(), true)
	equal(found[1].IsModify(), true)
	equal(string(found[1].PrevKv.Value), "1")
	equal(found[2].Type, clientv3.EventTypeDelete)
	equal(string(found[2].PrevKv.Value), "2")
	cancel()
	for range replies {
	}
}

func watchHistory(r run) {
	ctx, cancel := context.WithCancel(r)
	defer cancel()
	first := must(r.Put(r, "go/a", "1")).Header.Revision
	must(r.Put(r, "go/a", "2"))
	must(r.Delete(r, "go/a"))
	puts := r.Watch(ctx, "go/a", clientv3.WithRev(first), clientv3.WithFilterDelete())
	found := events(r, puts, 2)
	equal(found[0].Kv.ModRevision, first)
	equal(string(found[1].Kv.Value), "2")
}

func watchProgress(r run) {
	ctx, cancel := context.WithCancel(r)
	defer cancel()
	replies := r.Watch(ctx, "go/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	equal((<-replies).Created, true)
	revision := must(r.Put(r, "other", "2")).Header.Revision
	for {
		check(r.RequestProgress(ctx))
		select {
		case reply := <-replies:
			equal(reply.IsProgressNotify(), true)
			if reply.Header.Revision >= revision {
				return
			}
		case <-time.After(200 * time.Millisecond):
			// Asked before it was as far; a server need not answer that.
		}
	}
}

func watchCompacted(r run) {
	old := must(r.Put(r, "go/a", "1")).Header.Revision
	now := must(r.Put(r, "go/a", "2")).Header.Revision
	must(r.Compact(r, now))
	reply := <-r.Watch(r, "go/a", clientv3.WithRev(old))
	refused(reply.Err(), rpctypes.ErrCompacted)
	equal(reply.CompactRevision, now)
}

func lease(r run) {
	granted := must(r.Grant(r, 100))
	must(r.Put(r, "go/leased", "1", clientv3.WithLease(granted.ID)))
	left := must(r.TimeToLive(r, granted.ID, clientv3.WithAttachedKeys()))
	equal(left.GrantedTTL, 100)
	equal(string(left.Keys[0]), "go/leased")
	found := false
	for _, one := range must(r.Leases(r)).Leases {
		found = found || one.ID == granted.ID
	}
	equal(found, true)
	must(r.Revoke(r, granted.ID))
	equal(must(r.Get(r, "go/leased")).Count, 0)
	_, err := r.Revoke(r, granted.ID)
	refused(err, rpctypes.ErrLeaseNotFound)
	equal(must(r.TimeToLive(r, granted.ID)).TTL, -1)
}

// A lease of the shortest time outlives it for as long as it is kept alive, and not much longer.
func keepAlive(r run) {
	granted := must(r.Grant(r, 2))
	must(r.Put(r, "go/leased", "1", clientv3.WithLease(granted.ID)))
	ctx, cancel := context.WithCancel(r)
	defer cancel()
	begun := time.Now()
	for reply := range must(r.KeepAlive(ctx, granted.ID)) {
		equal(reply.TTL, 2)
		if time.Since(begun) > 2500*time.Millisecond {
			break
		}
	}
	equal(must(r.Get(r, "go/leased")).Count, 1)
	equal(must(r.KeepAliveOnce(r, granted.ID)).TTL, 2)
	cancel()
	replies := r.Watch(r, "go/leased")
	equal((<-replies).Events[0].Type, clientv3.EventTypeDelete)
	_, err := r.KeepAliveOnce(r, granted.ID)
	refused(err, rpctypes.ErrLeaseNotFound)
}

func newSession(r run) *concurrency.Session {
	return must(concurrency.NewSession(r.Client, concurrency.WithTTL(10), concurrency.WithContext(r)))
}

func session(r run) {
	s := newSession(r)
	must(r.Put(r, "go/session", "1", clientv3.WithLease(s.Lease())))
	check(s.Close())
	equal(must(r.Get(r, "go/session")).Count, 0)
	<-s.Done()
}

// Only one holds it at a time, and all get it.
func mutex(r run) {
	const workers, rounds = 4, 5
	counter, group := 0, sync.WaitGroup{}
	for range workers {
		group.Go(func() {
			s := newSession(r)
			lock := concurrency.NewMutex(s, "go/mutex")
			for range rounds {
				check(lock.Lock(r))
				before := counter
				time.Sleep(time.Millisecond)
				counter = before + 1
				check(lock.Unlock(r))
			}
			check(s.Close())
		})
	}
	group.Wait()
	equal(counter, workers*rounds)
	first, second := newSession(r), newSession(r)
	held := concurrency.NewMutex(first, "go/mutex")
	check(held.TryLock(r))
	refused(concurrency.NewMutex(second, "go/mutex").TryLock(r), concurrency.ErrLocked)
	check(first.Close())
	check(concurrency.NewMutex(second, "go/mutex").TryLock(r))
	check(second.Close())
}

func election(r run) {
	first, second := newSession(r), newSession(r)
	leader := concurrency.NewElection(first, "go/election")
	check(leader.Campaign(r, "first"))
	ctx, cancel := context.WithCancel(r)
	defer cancel()
	seen := leader.Observe(ctx)
	equal(string((<-seen).Kvs[0].Value), "first")
	check(leader.Proclaim(r, "first again"))
	equal(string((<-seen).Kvs[0].Value), "first again")
	follower, won := concurrency.NewElection(second, "go/election"), make(chan error)
	go func() { won <- follower.Campaign(r, "second") }()
	select {
	case <-won:
		log.Panic("there are two leaders")
	case <-time.After(100 * time.Millisecond):
	}
	check(leader.Resign(r))
	check(<-won)
	equal(string(must(follower.Leader(r)).Kvs[0].Value), "second")
	// The client of a leader that is gone need not say so.
	check(second.Close())
	_, err := leader.Leader(r)
	refused(err, concurrency.ErrElectionNoLeader)
	check(first.Close())
}

// Money moves between two accounts, from many at a time, and none is made or lost.
func stm(r run) {
	const workers, rounds = 4, 10
	must(r.Put(r, "go/from", "100"))
	must(r.Put(r, "go/to", "0"))
	group := sync.WaitGroup{}
	for range workers {
		group.Go(func() {
			for range rounds {
				must(concurrency.NewSTM(r.Client, func(tx concurrency.STM) error {
					from, to := must(strconv.Atoi(tx.Get("go/from"))), must(strconv.Atoi(tx.Get("go/to")))
					tx.Put("go/from", strconv.Itoa(from-1))
					tx.Put("go/to", strconv.Itoa(to+1))
					return nil
				}, concurrency.WithIsolation(concurrency.SerializableSnapshot)))
			}
		})
	}
	group.Wait()
	equal(string(must(r.Get(r, "go/from")).Kvs[0].Value), strconv.Itoa(100-workers*rounds))
	equal(string(must(r.Get(r, "go/to")).Kvs[0].Value), strconv.Itoa(workers*rounds))
}

func maintenance(r run) {
	endpoint := r.Endpoints()[0]
	status := must(r.Status(r, endpoint))
	equal(status.Leader, status.Header.MemberId)
	equal(status.Version != "", true)
	equal(status.DbSize > 0, true)
	equal(len(must(r.AlarmList(r)).Alarms), 0)
	first, second := must(r.HashKV(r, endpoint, 0)), must(r.HashKV(r, endpoint, 0))
	equal(first.Hash, second.Hash)
	must(r.Defragment(r, endpoint))
}

func snapshot(r run) {
	must(r.Put(r, "go/a", "1"))
	body := must(r.Snapshot(r))
	size := must(io.Copy(io.Discard, body))
	check(body.Close())
	// The file in pages, and its SHA-256.
	equal(size > 0 && size%512 == 32, true)
}

func members(r run) {
	list := must(r.MemberList(r))
	equal(len(list.Members), 1)
	equal(list.Members[0].Name != "" && len(list.Members[0].PeerURLs) > 0, true)
	equal(list.Members[0].ID, list.Header.MemberId)
	_, err := r.MemberRemove(r, 7)
	refused(err, rpctypes.ErrMemberNotFound)
}

func refusals(r run) {
	_, err := r.Put(r, "", "1")
	refused(err, rpctypes.ErrEmptyKey)
	_, err = r.Put(r, "go/a", "1", clientv3.WithLease(1))
	refused(err, rpctypes.ErrLeaseNotFound)
	granted := must(r.Grant(r, 100))
	_, err = clientv3.NewLease(r.Client).Grant(r, 9_000_000_001)
	refused(err, rpctypes.ErrLeaseTTLTooLarge)
	must(r.Revoke(r, granted.ID))
	_, err = r.Do(clientv3.WithRequireLeader(r), clientv3.OpGet("go/a"))
	check(err)
}

func users(r run) {
	must(r.UserAdd(r, "root", "secret"))
	must(r.UserGrantRole(r, "root", "root"))
	must(r.UserAdd(r, "ann", "password of ann"))
	must(r.RoleAdd(r, "go"))
	all := clientv3.PermissionType(clientv3.PermReadWrite)
	must(r.RoleGrantPermission(r, "go", "go/own/", "go/own0", all))
	must(r.UserGrantRole(r, "ann", "go"))
	must(r.AuthEnable(r))
	_, err := r.Put(r, "go/own/a", "1")
	refused(err, rpctypes.ErrUserEmpty)
	_, err = connect("ann", "wrong")
	refused(err, rpctypes.ErrAuthFailed)
	ann := must(connect("ann", "password of ann"))
	watched := ann.Watch(r, "go/own/", clientv3.WithPrefix())
	put := must(ann.Put(r, "go/own/a", "1"))
	equal(string(must(ann.Get(r, "go/own/a")).Kvs[0].Value), "1")
	told := <-watched
	check(told.Err())
	// It may have begun after the put.
	if len(told.Events) > 0 {
		equal(told.Events[0].Kv.ModRevision, put.Header.Revision)
	}
	_, err = ann.Put(r, "go/other", "1")
	refused(err, rpctypes.ErrPermissionDenied)
	_, err = ann.Get(r, "go/", clientv3.WithPrefix())
	refused(err, rpctypes.ErrPermissionDenied)
	_, err = ann.UserList(r)
	refused(err, rpctypes.ErrPermissionDenied)
	check(ann.Close())
	root := must(connect("root", "secret"))
	equal(len(must(root.UserList(r)).Users), 2)
	must(root.AuthDisable(r))
	check(root.Close())
	must(r.Put(r, "go/other", "1"))
	must(r.UserDelete(r, "ann"))
	must(r.UserDelete(r, "root"))
	must(r.RoleDelete(r, "go"))
}
