// Follows every key from a revision, with etcd's own client for Go, and says what it is told: a line of JSON for each
// message, until its standard input ends. The client resumes by itself whatever happens to the members; this program
// asks again and again how far the watch is. It judges nothing.
//
//	go run ./follow 2 http://127.0.0.1:2379 http://127.0.0.1:2479
package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"os"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const asking = 40 * time.Millisecond

// A word of progress has a revision and no events.
type line struct {
	Revision int64
	Events   []*clientv3.Event
	Error    string
}

func main() {
	log.SetFlags(0)
	from, err := strconv.ParseInt(os.Args[1], 10, 64)
	if err != nil {
		log.Panic(err)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   os.Args[2:],
		DialTimeout: 10 * time.Second,
		// A connection to a member that is stopped is given up.
		DialKeepAliveTime:    time.Second,
		DialKeepAliveTimeout: time.Second,
		// Members that do not answer are expected here, and are no news.
		Logger: zap.NewNop(),
	})
	if err != nil {
		log.Panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		// Whoever started it has gone.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	defer cancel()
	out := json.NewEncoder(os.Stdout)
	replies := client.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(from),
		clientv3.WithPrevKV(), clientv3.WithProgressNotify())
	tick := time.NewTicker(asking)
	for {
		select {
		case <-tick.C:
			asked, done := context.WithTimeout(ctx, time.Second)
			// It fails while there is no stream.
			_ = client.RequestProgress(asked)
			done()
		case reply, open := <-replies:
			said := line{Revision: reply.Header.Revision, Events: reply.Events}
			if !open {
				said.Error = "the channel was closed"
			} else if err := reply.Err(); err != nil {
				said.Error = err.Error()
			}
			if err := out.Encode(said); err != nil || said.Error != "" {
				return
			}
		}
	}
}
