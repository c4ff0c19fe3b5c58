"""Answers queries about people from LadybugDB: `ladybug.py DIRECTORY`.

The directory has a CSV file for each table. First a line of JSON tells the version and how long COPY took; then each line
of standard input is a query, {"query": ...}, and each line of standard output its answer, {"ns": ..., "rows": [[...], ...]}.
The time is that of `execute` with a prepared statement and of fetching all rows. Exit code 3: the module is not installed."""

import json
import sys
import time
import warnings

try:
    import ladybug
except ImportError:
    try:
        import real_ladybug as ladybug
    except ImportError:
        sys.exit(3)

warnings.simplefilter("ignore")

NODES = {
    "Person": "id INT64 PRIMARY KEY, name STRING, gender STRING, age INT64",
    "City": "id INT64 PRIMARY KEY, city STRING",
    "State": "id INT64 PRIMARY KEY, state STRING",
    "Country": "id INT64 PRIMARY KEY, country STRING",
    "Interest": "id INT64 PRIMARY KEY, interest STRING",
}
EDGES = {
    "FOLLOWS": ("Person", "Person"),
    "LIVES_IN": ("Person", "City"),
    "HAS_INTEREST": ("Person", "Interest"),
    "CITY_IN": ("City", "State"),
    "STATE_IN": ("State", "Country"),
}


def main():
    directory = sys.argv[1]
    database = ladybug.Database(f"{directory}/people.lbug", buffer_pool_size=1 << 30)
    connection = ladybug.Connection(database)
    for name, columns in NODES.items():
        connection.execute(f"CREATE NODE TABLE {name}({columns})")
    for name, (source, target) in EDGES.items():
        connection.execute(f"CREATE REL TABLE {name}(FROM {source} TO {target})")
    begun = time.perf_counter()
    for name in [*NODES, *EDGES]:
        connection.execute(f"COPY {name} FROM '{directory}/{name}.csv'")
    load = time.perf_counter() - begun
    connection.set_max_threads_for_exec(1)
    print(json.dumps({"version": ladybug.__version__, "load_s": load}), flush=True)

    prepared = {}
    for line in sys.stdin:
        query = json.loads(line)["query"]
        if query not in prepared:
            prepared[query] = connection.prepare(query)
        begun = time.perf_counter_ns()
        rows = connection.execute(prepared[query], {}).get_all()
        elapsed = time.perf_counter_ns() - begun
        rows = [[str(value) for value in row] for row in rows]
        print(json.dumps({"ns": elapsed, "rows": rows}), flush=True)


main()
