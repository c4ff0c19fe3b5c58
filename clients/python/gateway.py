#!/usr/bin/env python3
"""A client of etcd's JSON gateway, with nothing but the standard library.

    clients/python/gateway.py http://127.0.0.1:2379
    clients/python/gateway.py https://127.0.0.1:2379 CA-FILE [CHECK]

It says `ok NAME` for each check and ends with `done N`; the first check that fails ends it with 1. Nothing in
it knows which server it talks to: what it expects is what etcd answers.
"""

import base64
import http.client
import json
import ssl
import sys
import time
import urllib.parse

PATIENCE_S = 20


def b64(text):
    return base64.b64encode(text.encode()).decode()


def text(data):
    return base64.b64decode(data).decode()


class Stream:
    """A reply in lines. Its lines are `result`s, or an `error` at the end."""

    def __init__(self, connection, response):
        self.connection = connection
        self.response = response

    def next(self):
        line = self.response.readline()
        assert line.endswith(b"\n"), f"the stream has ended: {line}"
        return json.loads(line)["result"]

    def rest(self):
        return [json.loads(line)["result"] for line in self.response.read().splitlines()]

    def close(self):
        self.response.close()
        self.connection.close()


class Gateway:
    def __init__(self, url, ca=None):
        self.host = urllib.parse.urlsplit(url).netloc
        self.tls = ssl.create_default_context(cafile=ca) if ca else None

    def connect(self):
        if self.tls:
            return http.client.HTTPSConnection(self.host, timeout=PATIENCE_S, context=self.tls)
        return http.client.HTTPConnection(self.host, timeout=PATIENCE_S)

    def send(self, path, body, headers=None, method="POST"):
        connection = self.connect()
        data = body if isinstance(body, (str, bytes)) else json.dumps(body)
        connection.request(method, path, data, headers or {})
        return connection, connection.getresponse()

    def raw(self, path, body, headers=None, method="POST"):
        """Status and text."""
        connection, response = self.send(path, body, headers, method)
        reply = response.status, response.read().decode()
        connection.close()
        return reply

    def ask(self, path, body, headers=None):
        """The reply to a call that succeeds."""
        status, reply = self.raw(path, body, headers)
        assert status == 200, f"{path}: {status} {reply}"
        return json.loads(reply)

    def refused(self, path, body, headers=None):
        """Status, code and text of a call that does not."""
        status, reply = self.raw(path, body, headers)
        assert status != 200, f"{path} succeeded: {reply}"
        reply = json.loads(reply)
        # etcd 3.4 has the text twice, and another status for FailedPrecondition.
        if "error" in reply:
            assert reply.pop("error") == reply["message"], reply
            status = 400 if status == 412 else status
        equal(sorted(reply), ["code", "message"])
        return status, reply["code"], reply["message"]

    def stream(self, path, body):
        connection, response = self.send(path, body)
        assert response.status == 200, f"{path}: {response.status} {response.read()}"
        return Stream(connection, response)

    def clear(self, prefix):
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        self.ask("/v3/kv/deleterange", {"key": b64(prefix), "range_end": b64(end)})


def equal(found, wanted):
    assert found == wanted, f"found {found!r}, wanted {wanted!r}"


def put(g):
    g.clear("py/")
    first = g.ask("/v3/kv/put", {"key": b64("py/a"), "value": b64("1")})
    revision = int(first["header"]["revision"])
    # 64 bits are strings, and what is empty is left out.
    equal(sorted(first), ["header"])
    equal(sorted(first["header"]), ["cluster_id", "member_id", "raft_term", "revision"])
    assert all(isinstance(value, str) for value in first["header"].values()), first
    second = g.ask("/v3/kv/put", {"key": b64("py/a"), "value": b64("2"), "prevKv": True})
    equal(
        second["prev_kv"],
        {
            "key": b64("py/a"),
            "create_revision": str(revision),
            "mod_revision": str(revision),
            "version": "1",
            "value": b64("1"),
        },
    )
    equal(int(second["header"]["revision"]), revision + 1)


def get_range(g):
    g.clear("py/")
    for name in "abc":
        g.ask("/v3/kv/put", {"key": b64(f"py/{name}"), "value": b64(name.upper())})
    asked = {"key": b64("py/"), "range_end": b64("py0")}
    found = g.ask("/v3/kv/range", asked)
    equal(found["count"], "3")
    equal([(text(kv["key"]), text(kv["value"])) for kv in found["kvs"]], [("py/a", "A"), ("py/b", "B"), ("py/c", "C")])
    limited = g.ask("/v3/kv/range", asked | {"limit": 1, "sort_order": "DESCEND", "sort_target": "KEY"})
    equal([text(kv["key"]) for kv in limited["kvs"]], ["py/c"])
    equal((limited["more"], limited["count"]), (True, "3"))
    # Names as in the messages or in camel case, numbers as strings or not, enums by number.
    camel = {"key": b64("py/"), "rangeEnd": b64("py0"), "limit": "1", "sortOrder": 2, "keysOnly": True}
    (kv,) = g.ask("/v3/kv/range", camel)["kvs"]
    assert text(kv["key"]) == "py/c" and "value" not in kv, kv
    counted = g.ask("/v3/kv/range", asked | {"count_only": True, "an_unknown_field": {"a": [1]}})
    equal(sorted(counted), ["count", "header"])
    old = g.ask("/v3/kv/range", {"key": b64("py/b"), "revision": found["kvs"][0]["mod_revision"]})
    equal(sorted(old), ["header"])
    # Any bytes, which JSON could not hold.
    key = base64.b64encode(b"py/\xfb\xff\x00").decode()
    g.ask("/v3/kv/put", {"key": key, "value": key})
    equal(g.ask("/v3/kv/range", {"key": key})["kvs"][0]["value"], key)


def delete(g):
    g.clear("py/")
    g.ask("/v3/kv/put", {"key": b64("py/a"), "value": b64("1")})
    gone = g.ask("/v3/kv/deleterange", {"key": b64("py/a"), "prev_kv": True})
    equal((gone["deleted"], text(gone["prev_kvs"][0]["value"])), ("1", "1"))
    equal(sorted(g.ask("/v3/kv/deleterange", {"key": b64("py/a")})), ["header"])


def txn(g):
    g.clear("py/")
    swap = {
        "compare": [{"key": b64("py/a"), "target": "VERSION", "result": "EQUAL", "version": "0"}],
        "success": [
            {"request_put": {"key": b64("py/a"), "value": b64("1")}},
            {"requestRange": {"key": b64("py/a")}},
        ],
        "failure": [{"request_delete_range": {"key": b64("py/a")}}],
    }
    won = g.ask("/v3/kv/txn", swap)
    equal(won["succeeded"], True)
    equal([sorted(op) for op in won["responses"]], [["response_put"], ["response_range"]])
    equal(text(won["responses"][1]["response_range"]["kvs"][0]["value"]), "1")
    lost = g.ask("/v3/kv/txn", swap)
    assert "succeeded" not in lost, lost
    equal(lost["responses"][0]["response_delete_range"]["deleted"], "1")
    twice = {"success": [{"request_put": {"key": b64("py/a")}}] * 2}
    equal(
        g.refused("/v3/kv/txn", twice),
        (400, 3, "etcdserver: duplicate key given in txn request"),
    )
    # Nested, and by value.
    g.ask("/v3/kv/put", {"key": b64("py/a"), "value": b64("1")})
    inner = {
        "compare": [{"key": b64("py/a"), "target": "VALUE", "value": b64("1")}],
        "success": [{"request_put": {"key": b64("py/b"), "value": b64("2")}}],
    }
    outer = g.ask("/v3/kv/txn", {"success": [{"request_txn": inner}]})
    equal(outer["responses"][0]["response_txn"]["succeeded"], True)


def compaction(g):
    g.clear("py/")
    old = g.ask("/v3/kv/put", {"key": b64("py/a"), "value": b64("1")})["header"]["revision"]
    new = g.ask("/v3/kv/put", {"key": b64("py/a"), "value": b64("2")})["header"]["revision"]
    g.ask("/v3/kv/compaction", {"revision": new, "physical": True})
    equal(
        g.refused("/v3/kv/range", {"key": b64("py/a"), "revision": old}),
        (400, 11, "etcdserver: mvcc: required revision has been compacted"),
    )


def errors(g):
    equal(g.refused("/v3/kv/range", {}), (400, 3, "etcdserver: key is not provided"))
    equal(g.refused("/v3/kv/range", ""), (400, 3, "etcdserver: key is not provided"))
    equal(
        g.refused("/v3/kv/range", {"key": b64("a"), "revision": 1 << 40}),
        (400, 11, "etcdserver: mvcc: required revision is a future revision"),
    )
    equal(g.refused("/v3/lease/revoke", {"ID": 1}), (404, 5, "etcdserver: requested lease not found"))
    equal(g.refused("/v3/kv/put", {"key": b64("py/a"), "lease": 1}), (404, 5, "etcdserver: requested lease not found"))
    for body in ['{"key":', "[]", '{"key":7}', '{"key":"!!"}', '{"limit":1.5}', '{"limit":"x"}', '{"sort_order":"NOPE"}']:
        status, code, message = g.refused("/v3/kv/range", body)
        assert (status, code) == (400, 3) and message, (body, status, code, message)
    equal(g.raw("/v3/nothing", "{}")[0], 404)
    for method in ["GET", "PUT", "DELETE"]:
        # etcd answers 405 until 3.4, and 501 since.
        assert g.raw("/v3/kv/range", "{}", method=method)[0] in (405, 501), method
    # Also as `curl -d` calls the body, and with metadata of gRPC.
    for kind in ["application/json", "application/x-www-form-urlencoded"]:
        headers = {"Content-Type": kind, "Grpc-Metadata-hasleader": "true"}
        g.ask("/v3/kv/range", {"key": b64("py/a")}, headers)


def watch(g):
    g.clear("py/")
    create = {"create_request": {"key": b64("py/"), "range_end": b64("py0"), "prev_kv": True, "watch_id": 7}}
    stream = g.stream("/v3/watch", create)
    created = stream.next()
    equal((created["created"], created["watch_id"]), (True, "7"))
    g.ask("/v3/kv/put", {"key": b64("py/a"), "value": b64("1")})
    g.ask("/v3/kv/put", {"key": b64("py/a"), "value": b64("2")})
    g.ask("/v3/kv/deleterange", {"key": b64("py/a")})
    events = []
    while len(events) < 3:
        events += stream.next()["events"]
    # PUT is the default, and left out.
    equal([event.get("type") for event in events], [None, None, "DELETE"])
    equal([text(event["kv"].get("value", "")) for event in events], ["1", "2", ""])
    equal([text(event.get("prev_kv", {}).get("value", "")) for event in events], ["", "1", "2"])
    stream.close()


def watch_from_the_past(g):
    g.clear("py/")
    first = g.ask("/v3/kv/put", {"key": b64("py/a"), "value": b64("1")})["header"]["revision"]
    second = {"create_request": {"key": b64("py/b"), "watch_id": 9}}
    # Two requests in one body, a line each.
    body = json.dumps({"create_request": {"key": b64("py/a"), "start_revision": first}}) + "\n" + json.dumps(second)
    stream = g.stream("/v3/watch", body)
    seen = {}
    while len(seen) < 3:
        reply = stream.next()
        kind = "created" if "created" in reply else "events"
        seen[reply.get("watch_id", "0"), kind] = reply
    equal(sorted(seen), [("0", "created"), ("0", "events"), ("9", "created")])
    equal(text(seen["0", "events"]["events"][0]["kv"]["value"]), "1")
    stream.close()


def lease(g):
    g.clear("py/")
    granted = g.ask("/v3/lease/grant", {"TTL": 100})
    lease_id = granted["ID"]
    equal((granted["TTL"], isinstance(lease_id, str)), ("100", True))
    g.ask("/v3/kv/put", {"key": b64("py/leased"), "value": b64("1"), "lease": lease_id})
    for path in ["/v3/lease/timetolive", "/v3/kv/lease/timetolive"]:
        left = g.ask(path, {"ID": lease_id, "keys": True})
        equal((left["grantedTTL"], [text(key) for key in left["keys"]]), ("100", ["py/leased"]))
        assert 0 < int(left["TTL"]) <= 100, left
    equal(g.ask("/v3/lease/timetolive", {"ID": "1"})["TTL"], "-1")
    for path in ["/v3/lease/leases", "/v3/kv/lease/leases"]:
        assert lease_id in [one["ID"] for one in g.ask(path, {})["leases"]]
    equal(
        g.refused("/v3/lease/grant", {"TTL": 100, "ID": lease_id}),
        (400, 9, "etcdserver: lease already exists"),
    )
    g.ask("/v3/kv/lease/revoke", {"ID": lease_id})
    equal(sorted(g.ask("/v3/kv/range", {"key": b64("py/leased")})), ["header"])
    g.ask("/v3/lease/revoke", {"ID": g.ask("/v3/lease/grant", {"TTL": 100})["ID"]})


def keep_alive(g):
    lease_id = g.ask("/v3/lease/grant", {"TTL": 100})["ID"]
    # What the body asks is answered, and then the stream ends.
    (alive,) = g.stream("/v3/lease/keepalive", {"ID": lease_id}).rest()
    equal((alive["ID"], alive["TTL"]), (lease_id, "100"))
    body = f'{{"ID":{lease_id}}}{{"ID":"1"}}\n{{"ID":"{lease_id}"}}'
    replies = g.stream("/v3/lease/keepalive", body).rest()
    equal([(one["ID"], one.get("TTL")) for one in replies], [(lease_id, "100"), ("1", None), (lease_id, "100")])
    g.ask("/v3/lease/revoke", {"ID": lease_id})


def members(g):
    (member,) = g.ask("/v3/cluster/member/list", {})["members"]
    assert int(member["ID"]) and member["name"] and member["peerURLs"] and member["clientURLs"], member
    equal(g.refused("/v3/cluster/member/remove", {"ID": 7}), (404, 5, "etcdserver: member not found"))


def status(g):
    found = g.ask("/v3/maintenance/status", {})
    assert found["version"] and found["leader"] == found["header"]["member_id"], found
    assert int(found["dbSize"]) and int(found["raftIndex"]) and int(found["raftTerm"]), found
    equal(g.ask("/v3/maintenance/alarm", {}).get("alarms"), None)
    # 32 bits are a number; of an empty database it may be 0, and left out.
    g.ask("/v3/kv/put", {"key": b64("py/a"), "value": b64("1")})
    assert isinstance(g.ask("/v3/maintenance/hash", {})["hash"], int)
    g.ask("/v3/maintenance/defragment", {})
    equal(g.refused("/v3/maintenance/transfer-leadership", {"targetID": "77"})[1], 9)


def snapshot(g):
    parts = g.stream("/v3/maintenance/snapshot", {}).rest()
    size = sum(len(base64.b64decode(part.get("blob", ""))) for part in parts)
    equal(size % 512, 32)


def lock(g):
    lease_id = g.ask("/v3/lease/grant", {"TTL": 100})["ID"]
    held = g.ask("/v3/lock/lock", {"name": b64("py-lock"), "lease": lease_id})
    assert text(held["key"]).startswith("py-lock/"), held
    equal(g.ask("/v3/kv/range", {"key": held["key"]})["kvs"][0]["lease"], lease_id)
    g.ask("/v3/lock/unlock", {"key": held["key"]})
    equal(sorted(g.ask("/v3/kv/range", {"key": held["key"]})), ["header"])
    g.ask("/v3/lease/revoke", {"ID": lease_id})


def election(g):
    lease_id = g.ask("/v3/lease/grant", {"TTL": 100})["ID"]
    name = b64("py-election")
    won = g.ask("/v3/election/campaign", {"name": name, "lease": lease_id, "value": b64("a")})["leader"]
    equal(won["lease"], lease_id)
    equal(text(g.ask("/v3/election/leader", {"name": name})["kv"]["value"]), "a")
    stream = g.stream("/v3/election/observe", {"name": name})
    equal(text(stream.next()["kv"]["value"]), "a")
    g.ask("/v3/election/proclaim", {"leader": won, "value": b64("b")})
    equal(text(stream.next()["kv"]["value"]), "b")
    stream.close()
    g.ask("/v3/election/resign", {"leader": won})
    equal(g.refused("/v3/election/leader", {"name": name})[2], "election: no leader")
    g.ask("/v3/lease/revoke", {"ID": lease_id})


def auth(g):
    equal(
        g.refused("/v3/auth/authenticate", {"name": "root", "password": "x"}),
        (400, 9, "etcdserver: authentication is not enabled"),
    )
    g.ask("/v3/auth/user/list", {})


def users(g):
    g.ask("/v3/auth/user/add", {"name": "root", "password": "secret"})
    g.ask("/v3/auth/user/grant", {"user": "root", "role": "root"})
    g.ask("/v3/auth/user/add", {"name": "ann", "password": "password of ann"})
    g.ask("/v3/auth/role/add", {"name": "py"})
    own = {"permType": "READWRITE", "key": b64("py/own/"), "range_end": b64("py/own0")}
    g.ask("/v3/auth/role/grant", {"name": "py", "perm": own})
    g.ask("/v3/auth/user/grant", {"user": "ann", "role": "py"})
    g.ask("/v3/auth/enable", {})
    put_own = {"key": b64("py/own/a"), "value": b64("1")}
    put_other = {"key": b64("py/other"), "value": b64("1")}
    equal(g.refused("/v3/kv/put", put_own), (400, 3, "etcdserver: user name is empty"))
    wrong = g.refused("/v3/auth/authenticate", {"name": "ann", "password": "wrong"})
    equal(wrong, (400, 3, "etcdserver: authentication failed, invalid user ID or password"))
    as_ann = {"Authorization": g.ask("/v3/auth/authenticate", {"name": "ann", "password": "password of ann"})["token"]}
    g.ask("/v3/kv/put", put_own, as_ann)
    equal(g.ask("/v3/kv/range", {"key": put_own["key"]}, as_ann)["kvs"][0]["value"], b64("1"))
    denied = (403, 7, "etcdserver: permission denied")
    equal(g.refused("/v3/kv/put", put_other, as_ann), denied)
    equal(g.refused("/v3/auth/user/list", {}, as_ann), denied)
    equal(g.refused("/v3/kv/put", put_own, {"Authorization": "nobody's"})[:2], (401, 16))
    as_root = {"Authorization": g.ask("/v3/auth/authenticate", {"name": "root", "password": "secret"})["token"]}
    equal(sorted(g.ask("/v3/auth/user/list", {}, as_root)["users"]), ["ann", "root"])
    g.ask("/v3/auth/disable", {}, as_root)
    g.ask("/v3/kv/put", put_other)
    for name in ["ann", "root"]:
        g.ask("/v3/auth/user/delete", {"name": name})
    g.ask("/v3/auth/role/delete", {"role": "py"})


CHECKS = [
    put,
    get_range,
    delete,
    txn,
    compaction,
    errors,
    watch,
    watch_from_the_past,
    lease,
    keep_alive,
    members,
    status,
    snapshot,
    lock,
    election,
    auth,
    users,
]


def main():
    gateway = Gateway(*sys.argv[1:3])
    only = sys.argv[3:4]
    done = 0
    for check in CHECKS:
        if only and check.__name__ not in only:
            continue
        begun = time.monotonic()
        check(gateway)
        print(f"ok {check.__name__} ({(time.monotonic() - begun) * 1000:.0f} ms)", flush=True)
        done += 1
    print(f"done {done}")


if __name__ == "__main__":
    main()
