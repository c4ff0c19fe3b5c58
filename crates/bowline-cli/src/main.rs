//! The `bowline` program. What it does stands in the library beside it, where tests reach it.

fn main() -> bowline_cli::exit::Exit {
    bowline_cli::run_process()
}
