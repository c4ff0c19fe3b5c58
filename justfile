# What a contributor runs. `just verify` changes no file; `just fix` does.

set shell := ["bash", "-euo", "pipefail", "-c"]

# List the recipes.
default:
    @just --list

# Everything that must hold before a commit. Reads only.
verify:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    checks/interleavings --build-only
    cargo run -p bowline-mutants -- --check
    cargo test --workspace
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Format, and apply what clippy can mend by itself.
fix:
    cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
    cargo fmt --all

# Simulate clusters under faults, in virtual time: so many seeds, each twice.
simulate SEEDS="100":
    cargo run --release -p bowline-simulation -- {{SEEDS}}

# See what Bowline does, on a real dependency graph.
tour:
    cargo run --release -- tour

# The program as one static file, for any Linux: target/…-musl/release/bowline.
static:
    checks/static

# The Debian package of a release build, in dist.
deb:
    cargo build --release --locked
    packaging/build-deb

# The container image of the static program, and a try of its files without a container tool.
image:
    checks/static
    checks/image
    packaging/build-image

# The bill of materials of the program (CycloneDX): dist/bowline.cdx.json.
sbom:
    mkdir -p dist
    checks/sbom dist/bowline.cdx.json

# Two builds of this commit are equal bit by bit. OPTIONS: `--deb` compares the packages, too.
reproducible *OPTIONS:
    checks/reproducible {{ OPTIONS }}

# A cluster under faults whose members are upgraded from an earlier commit, and put back to it.
# ARGS: the commit, and how many rounds.
upgrade *ARGS:
    checks/upgrade {{ ARGS }}

# Bowline beside other stores: `just bench peers --quick`, `just bench reference`, `just bench report`.
bench *ARGS:
    cargo run --release -p bowline-bench --features peers -- {{ ARGS }}

# The crash tests of the database with a million images (or N): hours. Shows what was covered.
crash-images N="1000000":
    BOWLINE_CRASH_IMAGES={{ N }} cargo test -p bowline --test crash -- --nocapture

# The crash tests of the database with the seeds 1 to N.
crash N="10":
    for seed in $(seq {{ N }}); do BOWLINE_SEED=$seed cargo test -p bowline --test crash; done

# Put known bugs in, one at a time, and see that their tests catch them. NAMES: parts of names.
mutants *NAMES:
    cargo run -p bowline-mutants -- {{ NAMES }}

# The concurrent code under a scheduler that tries orders of its steps. PERCENT of the ordinary number.
interleavings PERCENT="100" *TEST:
    checks/interleavings {{ PERCENT }} {{ TEST }}

# The unsafe modules under Miri. SEEDS: how many orders of the small race are tried.
miri SEEDS="8":
    checks/miri {{ SEEDS }}

# The tests with threads under ThreadSanitizer, or AddressSanitizer.
tsan SANITIZER="thread":
    checks/tsan {{ SANITIZER }}

# Fuzz each target for so many seconds.
fuzz SECONDS="60" *TARGETS:
    tools/fuzz/run {{ SECONDS }} {{ TARGETS }}

# Everything at once on real files, for so many seconds.
soak SECONDS="600":
    BOWLINE_SOAK_SECONDS={{ SECONDS }} cargo test -p bowline --test soak -- --nocapture
