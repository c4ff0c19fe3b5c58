//! As much of `protoc` as the build of a client asks for: it compiles files to descriptors, with
//! `protox`, which is written in Rust.

use std::env;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut includes, mut files, mut output) = (Vec::new(), Vec::new(), None);
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            // Both are so below.
            "--include_imports" | "--include_source_info" => {}
            "-I" => includes.push(PathBuf::from(words.next().ok_or("-I names no folder")?)),
            "-o" => output = words.next(),
            flag if flag.starts_with('-') => {
                return Err(format!("{flag} is not known to this stand-in for protoc").into());
            }
            _ => files.push(PathBuf::from(word)),
        }
    }
    let mut compiler = protox::Compiler::new(includes)?;
    compiler.include_imports(true);
    compiler.include_source_info(true);
    compiler.open_files(files)?;
    let output = output.ok_or("-o names no file")?;
    std::fs::write(output, compiler.encode_file_descriptor_set())?;
    Ok(())
}
