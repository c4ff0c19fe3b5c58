//! The receiver of a snapshot: it writes the files into `incoming`, checks and syncs them.
//!
//! Files come in the order of the head, each from start to end without a gap; anything else is refused, so
//! that only announced files are written. Files of an earlier transfer are removed first. Then the disk must
//! have room for all, with a reserve.
//!
//! Each file is verified as soon as it is complete, if its expected contents are known. The next chunks wait
//! meanwhile, so there is no long check at the end, which the sender would take for a failure.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_proto::peer::FileChunk;
use bowline_storage::engine::ArrivingFiles;
use bowline_storage::vfs::{self, OpenMode, Vfs, VfsFile};
use bowline_storage::{Error, Result};
use tonic::Status;

use super::{CHUNK_BYTES, SnapshotFile};

/// The reserve beside a snapshot: the log has to go on.
const SPARE_BYTES: u64 = 64 << 20;

/// The files of one transfer.
pub(crate) struct Receiver {
    vfs: Arc<dyn Vfs>,
    directory: PathBuf,
    files: Vec<SnapshotFile>,
    /// The expected files.
    expected: Option<ArrivingFiles>,
    /// The file being written, its length so far, and the checksum of that.
    current: usize,
    open: Option<Arc<dyn VfsFile>>,
    offset: u64,
    crc: u32,
}

fn refuse(reason: &str) -> Status {
    Status::data_loss(format!("a snapshot arrived damaged: {reason}"))
}

fn failed(error: &Error) -> Status {
    let status = match error {
        Error::NoSpace { .. } | Error::TooManyFiles { .. } => Status::resource_exhausted,
        _ => Status::internal,
    };
    status(format!("cannot take a snapshot: {error}"))
}

impl Receiver {
    /// Empties the directory and prepares for `files`.
    pub(crate) fn begin(
        vfs: Arc<dyn Vfs>,
        directory: PathBuf,
        files: Vec<SnapshotFile>,
        expected: Option<ArrivingFiles>,
    ) -> Result<Receiver, Status> {
        clear(&*vfs, &directory).map_err(|error| failed(&error))?;
        check_room(&*vfs, &directory, &files)?;
        let mut receiver = Receiver {
            vfs,
            directory,
            files,
            expected,
            current: 0,
            open: None,
            offset: 0,
            crc: 0,
        };
        receiver.skip_complete()?;
        Ok(receiver)
    }

    /// Writes a chunk.
    pub(crate) fn chunk(&mut self, chunk: &FileChunk) -> Result<(), Status> {
        let (number, offset, len) = (chunk.file as usize, chunk.offset, chunk.data.len() as u64);
        let Some(file) = self.files.get(self.current) else {
            return Err(refuse("a chunk behind the last file"));
        };
        if number != self.current || offset != self.offset {
            return Err(refuse(&format!(
                "file {number} at {offset} where file {} at {} was expected",
                self.current, self.offset
            )));
        }
        if len == 0 || len > CHUNK_BYTES as u64 || len > file.bytes - self.offset {
            return Err(refuse(&format!(
                "{len} bytes at once, at {offset} of {}",
                file.name
            )));
        }
        if crc32c::crc32c(&chunk.data) != chunk.crc32c {
            return Err(refuse(&format!(
                "the checksum at {offset} of {}",
                file.name
            )));
        }
        let path = self.directory.join(&file.name);
        let open = self.open.as_ref();
        let open = open.ok_or_else(|| Status::internal("no file is open for a chunk"))?;
        vfs::write_all_at(&**open, &path, &chunk.data, offset).map_err(|error| failed(&error))?;
        self.crc = crc32c::crc32c_append(self.crc, &chunk.data);
        self.offset += len;
        if self.offset == file.bytes {
            self.complete()?;
            self.skip_complete()?;
        }
        Ok(())
    }

    /// Ends the transfer: all files must be complete. Returns the directory and the files.
    pub(crate) fn end(self) -> Result<(PathBuf, Vec<SnapshotFile>), Status> {
        if let Some(file) = self.files.get(self.current) {
            let reason = format!("it ends at {} of {}", self.offset, file.name);
            return Err(refuse(&reason));
        }
        let synced = self.vfs.sync_dir(&self.directory);
        synced.map_err(|error| failed(&Error::io("sync", &self.directory, error)))?;
        Ok((self.directory, self.files))
    }

    /// Creates the current file, and the empty ones after it.
    fn skip_complete(&mut self) -> Result<(), Status> {
        while let Some(file) = self.files.get(self.current) {
            let path = self.directory.join(&file.name);
            let open = self.vfs.open(&path, OpenMode::CreateNew);
            let open = open.map_err(|error| failed(&Error::io("create", &path, error)))?;
            let is_empty = file.bytes == 0;
            self.open = Some(open);
            (self.offset, self.crc) = (0, 0);
            if !is_empty {
                break;
            }
            self.complete()?;
        }
        Ok(())
    }

    /// The current file has its length: checks and syncs it.
    fn complete(&mut self) -> Result<(), Status> {
        let (Some(file), Some(open)) = (self.files.get(self.current), self.open.take()) else {
            return Err(Status::internal("no file is open"));
        };
        if self.crc != file.crc32c {
            return Err(refuse(&format!("the checksum of {}", file.name)));
        }
        let path = self.directory.join(&file.name);
        vfs::sync_data(&*open, &path).map_err(|error| failed(&error))?;
        drop(open);
        if let Some(expected) = &self.expected {
            let verified = expected.verify(&self.vfs, &self.directory, &file.name);
            verified.map_err(|error| match error.is_corruption() {
                true => refuse(&error.to_string()),
                false => failed(&error),
            })?;
        }
        self.current += 1;
        Ok(())
    }
}

/// Refuses files for which there is no room, before any of them is written.
fn check_room(vfs: &dyn Vfs, directory: &Path, files: &[SnapshotFile]) -> Result<(), Status> {
    let available = vfs.available(directory);
    let available = available.map_err(|error| failed(&Error::io("stat", directory, error)))?;
    let sizes = files.iter().map(|file| file.bytes);
    let needed = sizes.fold(SPARE_BYTES, u64::saturating_add);
    match available {
        Some(available) if available < needed => Err(Status::resource_exhausted(format!(
            "cannot take a snapshot: it needs {needed} bytes on the disk, {available} are free: make \
             room"
        ))),
        _ => Ok(()),
    }
}

/// Makes `directory` an empty one, durably.
fn clear(vfs: &dyn Vfs, directory: &Path) -> Result<()> {
    match vfs.create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::io("create", directory, error));
        }
        _ => vfs::sync_parent(vfs, directory)?,
    }
    let names = vfs
        .read_dir(directory)
        .map_err(|error| Error::io("list", directory, error))?;
    for path in names.iter().map(|name| directory.join(name)) {
        vfs.remove_file(&path)
            .map_err(|error| Error::io("remove", &path, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bowline::{Background, BlobOptions, Db};
    use bowline_replica::{Command, Op, PutOp, Replica, ReplicaOptions, Txn};
    use bowline_storage::engine::FrozenTable;
    use bowline_storage::vfs::MemoryVfs;
    use bowline_testing::FaultVfs;
    use tonic::Code;

    use super::*;

    fn described(name: &str, contents: &[u8]) -> SnapshotFile {
        SnapshotFile {
            name: name.to_owned(),
            bytes: contents.len() as u64,
            crc32c: crc32c::crc32c(contents),
        }
    }

    fn chunk(file: u32, offset: u64, data: &'static [u8]) -> FileChunk {
        FileChunk {
            file,
            offset,
            crc32c: crc32c::crc32c(data),
            data: data.into(),
        }
    }

    fn begin(vfs: &Arc<dyn Vfs>) -> Receiver {
        let files = vec![
            described("none", b""),
            described("a", b"first, second"),
            described("nothing", b""),
            described("b", b"third"),
            described("void", b""),
        ];
        Receiver::begin(vfs.clone(), "incoming".into(), files, None).expect("begin")
    }

    #[test]
    fn files_arrive_whole() {
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
        // Twice: files of the first transfer do no harm.
        for _ in 0..2 {
            let mut receiver = begin(&vfs);
            receiver.chunk(&chunk(1, 0, b"first, ")).expect("chunk");
            receiver.chunk(&chunk(1, 7, b"second")).expect("chunk");
            receiver.chunk(&chunk(3, 0, b"third")).expect("chunk");
            let (directory, files) = receiver.end().expect("whole");
            assert_eq!(files.len(), 5);
            for (name, contents) in [("a", &b"first, second"[..]), ("b", b"third"), ("void", b"")] {
                let found = vfs::read_file(&*vfs, &directory.join(name), 100).expect("read");
                assert_eq!(found, contents);
            }
        }
    }

    /// A snapshot without enough room filled the disk before it was refused.
    #[test]
    fn what_there_is_no_room_for_is_refused_before_it_is_written() {
        let disk = FaultVfs::new(MemoryVfs::default());
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        disk.limit_space(SPARE_BYTES + 10);
        let begin = |bytes| {
            let file = SnapshotFile {
                bytes,
                ..described("a", b"")
            };
            Receiver::begin(vfs.clone(), "incoming".into(), vec![file], None)
        };
        begin(10).map(drop).expect("there is room");
        let refused = begin(11).map(drop).expect_err("there is none");
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert!(refused.message().contains("make room"), "{refused}");
        // The sum overflows 64 bits.
        assert!(begin(u64::MAX).is_err());
        let left = vfs.read_dir(Path::new("incoming")).expect("list");
        assert!(left.is_empty(), "{left:?}");
    }

    /// A member's snapshot: a state, and its tables and blob files.
    fn frozen() -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
        let database = Db::builder().vfs(vfs).background(Background::Manual);
        let database = database.blobs(BlobOptions {
            threshold_bytes: Some(64),
            ..BlobOptions::default()
        });
        let options = ReplicaOptions {
            database_id: 7,
            first_file_id: 1 << 32,
            locked: &mut |_| Ok(()),
            damaged: &mut |_| Ok(false),
            visit: &mut |_, _| Ok(()),
        };
        let (replica, mut log) = Replica::open(database, "db", options).expect("replica");
        // Tables wait for the log; the contents of the entries do not matter here.
        let staged: Vec<_> = (0..100).map(|_| log.stage(b"entry")).collect();
        log.write().expect("write");
        log.sync().expect("sync");
        let mut applier = replica.apply();
        for index in staged {
            let put = PutOp {
                key: format!("k{index}").into(),
                value: vec![b'v'; index as usize].into(),
                ..PutOp::default()
            };
            let put = Command::Txn(Txn::of(Op::Put(put)));
            let applied = applier.entry(index, 1, &[put], b"", None);
            applied.expect("apply");
        }
        applier.finish().expect("apply");
        let (frozen, _) = replica.freeze().expect("freeze");
        let read = |table: &FrozenTable| {
            let mut bytes = vec![0; table.file_bytes() as usize];
            let read = table.file().read_at(&mut bytes, 0).expect("read");
            assert_eq!(read, bytes.len());
            (table.name(), bytes)
        };
        let files = frozen.tables.iter().map(read).collect();
        (frozen.state.clone(), files)
    }

    /// Receives these files of a state, each in one chunk.
    fn receive(state: &[u8], files: &[(String, Vec<u8>)]) -> Result<(), Status> {
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
        let source = Path::new("incoming");
        let expected = Replica::arriving_files(source, state).expect("a state");
        assert_eq!(expected.count(), files.len());
        let announced = files.iter().map(|(name, bytes)| described(name, bytes));
        let announced = announced.collect();
        let mut receiver = Receiver::begin(vfs, source.into(), announced, Some(expected))?;
        for (number, (_, bytes)) in files.iter().enumerate() {
            receiver.chunk(&FileChunk {
                file: number as u32,
                offset: 0,
                crc32c: crc32c::crc32c(bytes),
                data: bytes.clone().into(),
            })?;
        }
        receiver.end().map(drop)
    }

    /// A file's checksum was that of the sender's bytes, rotten or not: rot at the sender was installed here.
    #[test]
    fn what_had_rotted_before_it_was_sent_is_refused() {
        let (state, files) = frozen();
        assert!(files.len() > 1, "a table and a blob file");
        receive(&state, &files).expect("all is well");
        for number in 0..files.len() {
            let length = files[number].1.len();
            for at in (0..length).step_by(length / 50 + 1) {
                let mut rotten = files.clone();
                rotten[number].1[at] ^= 1;
                let refused = receive(&state, &rotten).map(drop);
                let refused = refused.expect_err("one bit is another");
                assert_eq!(refused.code(), Code::DataLoss, "{refused}");
            }
        }
    }

    #[test]
    fn what_was_not_announced_is_refused() {
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
        let mut wrong = chunk(1, 0, b"first");
        wrong.crc32c ^= 1;
        for bad in [
            chunk(0, 0, b"x"),
            chunk(3, 0, b"third"),
            chunk(1, 1, b"first"),
            chunk(1, 0, b""),
            chunk(1, 0, b"longer than it was announced"),
            // The right length, other bytes.
            chunk(1, 0, b"fourth, fifth"),
            wrong,
        ] {
            let error = begin(&vfs).chunk(&bad).expect_err("refused");
            assert_eq!(error.code(), Code::DataLoss, "{error}");
        }
        let mut receiver = begin(&vfs);
        receiver.chunk(&chunk(1, 0, b"first, ")).expect("chunk");
        assert_eq!(
            receiver.end().expect_err("ends early").code(),
            Code::DataLoss
        );
    }
}
