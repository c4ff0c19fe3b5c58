"""Answers questions about a graph from LadybugDB: `ladybug.py DIRECTORY`.

The directory has `vertices.csv` and `edges.csv`. First a line of JSON tells the version and how long COPY took; then each
line of standard input is a question, {"question": ..., "batch": [[from, to], ...]}, and each line of standard output its
answer, {"ns": ..., "numbers": [...]}. The time is that of `execute` with a prepared statement and of fetching all rows, so
it holds what Python adds. Exit code 3: the module is not installed."""

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

# It advises against preparing apart from executing; a statement that is prepared once is what is to be measured.
warnings.simplefilter("ignore")

# SHORTEST visits each vertex once; it does not count the start.
QUESTIONS = {
    "OneHop": "MATCH (a:V {id: $from})-[:E]->(b:V) RETURN b.id",
    "ThreeHops": "MATCH (a:V {id: $from})-[:E* SHORTEST 1..3]->(b:V) RETURN count(*)",
    "Reach": "MATCH (a:V {id: $from})-[:E* SHORTEST 1..30]->(b:V) RETURN count(*)",
    "ShortestPath": "MATCH p = (a:V {id: $from})-[:E* SHORTEST 1..30]->(b:V {id: $to}) RETURN length(p)",
}


def main():
    directory = sys.argv[1]
    database = ladybug.Database(f"{directory}/graph.lbug", buffer_pool_size=1 << 30)
    connection = ladybug.Connection(database)
    connection.execute("CREATE NODE TABLE V(id INT64 PRIMARY KEY)")
    connection.execute("CREATE REL TABLE E(FROM V TO V)")
    begun = time.perf_counter()
    connection.execute(f"COPY V FROM '{directory}/vertices.csv'")
    connection.execute(f"COPY E FROM '{directory}/edges.csv'")
    load = time.perf_counter() - begun
    connection.set_max_threads_for_exec(1)
    prepared = {question: connection.prepare(text) for question, text in QUESTIONS.items()}
    print(json.dumps({"version": ladybug.__version__, "load_s": load}), flush=True)

    for line in sys.stdin:
        asked = json.loads(line)
        question = asked["question"]
        statement = prepared[question]
        numbers = []
        begun = time.perf_counter_ns()
        for start, end in asked["batch"]:
            arguments = {"from": start}
            if question == "ShortestPath":
                arguments["to"] = end
            rows = connection.execute(statement, arguments).get_all()
            numbers.append(len(rows) if question == "OneHop" else rows[0][0])
        elapsed = time.perf_counter_ns() - begun
        if question == "Reach":
            numbers = [number + 1 for number in numbers]
        print(json.dumps({"ns": elapsed, "numbers": numbers}), flush=True)


main()
