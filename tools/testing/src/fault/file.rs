//! An open file of a [`FaultVfs`](super::FaultVfs).

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bowline_storage::vfs::VfsFile;
use parking_lot::Mutex;

use super::rule::{Call, Effect, Failure};
use super::{Faults, panicked, run};

#[derive(Debug)]
pub(super) struct FaultFile {
    pub(super) inner: Arc<dyn VfsFile>,
    /// Its present name.
    pub(super) name: Arc<Mutex<PathBuf>>,
    pub(super) faults: Arc<Mutex<Faults>>,
}

impl FaultFile {
    fn path(&self) -> PathBuf {
        self.name.lock().clone()
    }

    /// Transfers `len` bytes as the rules allow; `work` receives the allowed length.
    fn transfer(
        &self,
        call: Call,
        len: usize,
        work: impl FnOnce(usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let path = self.path();
        let effect = self.faults.lock().before(call, &[&path]);
        match effect {
            Some(Effect::Fail(failure)) => Err(failure.to_error()),
            Some(Effect::FailAfter(failure)) => {
                work(len)?;
                Err(failure.to_error())
            }
            Some(Effect::Short(most)) => work(len.min(most)),
            Some(Effect::Panic) => panicked(call, &path),
            None => work(len),
        }
    }

    /// Writes as much as there is space for.
    fn write_within_space(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut faults = self.faults.lock();
        let Some(space_bytes) = &mut faults.space_bytes else {
            drop(faults);
            return self.inner.write_at(bytes, offset);
        };
        // The lock is held from here on, so that two writers cannot use the same space.
        let len = self.inner.len()?;
        let end_most = len.saturating_add(*space_bytes);
        let room = usize::try_from(end_most.saturating_sub(offset)).unwrap_or(usize::MAX);
        let part = &bytes[..bytes.len().min(room)];
        if part.is_empty() && !bytes.is_empty() {
            return Err(Failure::NoSpace.to_error());
        }
        let written = self.inner.write_at(part, offset)?;
        *space_bytes -= self.inner.len()?.saturating_sub(len).min(*space_bytes);
        Ok(written)
    }

    fn set_len_within_space(&self, len: u64) -> io::Result<()> {
        let mut faults = self.faults.lock();
        let Some(space_bytes) = &mut faults.space_bytes else {
            drop(faults);
            return self.inner.set_len(len);
        };
        let old_len = self.inner.len()?;
        if len.saturating_sub(old_len) > *space_bytes {
            return Err(Failure::NoSpace.to_error());
        }
        self.inner.set_len(len)?;
        *space_bytes = (*space_bytes + old_len).saturating_sub(len);
        Ok(())
    }
}

impl VfsFile for FaultFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.transfer(Call::Read, buffer.len(), |most| {
            self.inner.read_at(&mut buffer[..most], offset)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.transfer(Call::Write, bytes.len(), |most| {
            self.write_within_space(&bytes[..most], offset)
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        run(&self.faults, Call::Sync, &[&self.path()], || {
            self.inner.sync_data()
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        run(&self.faults, Call::SetLen, &[&self.path()], || {
            self.set_len_within_space(len)
        })
    }

    fn len(&self) -> io::Result<u64> {
        run(&self.faults, Call::Stat, &[&self.path()], || {
            self.inner.len()
        })
    }
}
