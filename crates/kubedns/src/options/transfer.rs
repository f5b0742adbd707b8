//! `--transfer-to` and `--transfer-key`: who may have the zones, and the key to sign with.

use std::path::{Path, PathBuf};

use skydns::transfer::{Key, KeyError, Peers};
use thiserror::Error;

use super::{Options, given};

/// Who may transfer zones.
#[derive(Debug)]
pub struct TransferTo {
    /// The secondaries.
    pub peers: Peers,
    /// The key that they have to sign with, if there is one.
    pub key: Option<Key>,
}

/// Flags for transfers that make no sense.
#[derive(Debug, Error)]
pub enum TransferError {
    /// A key for nobody.
    #[error("--transfer-key is for the secondaries of --transfer-to, which is not given")]
    KeyWithoutPeers,
    /// The file cannot be read.
    #[error("cannot read --transfer-key {}", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    /// It holds no key.
    #[error("--transfer-key {}", .0.display())]
    Key(PathBuf, #[source] KeyError),
}

impl Options {
    /// Who may transfer zones; `None` for nobody. Reads the file of the key.
    ///
    /// # Errors
    ///
    /// When there is a key and nobody to use it, or it cannot be read.
    pub fn transfers(&self) -> Result<Option<TransferTo>, TransferError> {
        let (peers, file) = (&self.transfer_to, given(&self.transfer_key));
        match (peers.is_empty(), file) {
            (true, None) => Ok(None),
            (true, Some(_)) => Err(TransferError::KeyWithoutPeers),
            (false, file) => {
                let key = file.map(|file| read(Path::new(file))).transpose()?;
                Ok(Some(TransferTo { peers: peers.clone(), key }))
            }
        }
    }
}

fn read(file: &Path) -> Result<Key, TransferError> {
    let text = std::fs::read_to_string(file).map_err(|error| TransferError::Read(file.to_owned(), error))?;
    Key::parse(&text).map_err(|error| TransferError::Key(file.to_owned(), error))
}
