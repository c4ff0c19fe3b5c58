//! The binary of the `bowline` program. Its code is the library of this package, so that tests can call it.

fn main() -> bowline_cli::exit::Exit {
    bowline_cli::run_process()
}
