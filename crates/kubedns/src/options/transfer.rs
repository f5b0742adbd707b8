//! `--transfer-to` and `--transfer-key`: the secondaries of the zones, and the file of their TSIG
//! key.

use std::path::{Path, PathBuf};

use skydns::transfer::{ParseTsigKeyError, TransferPeers, TsigKey};
use thiserror::Error;

use super::{Options, given};

/// The secondaries that may transfer zones.
#[derive(Debug)]
pub struct TransferTo {
    /// The secondaries.
    pub peers: TransferPeers,
    /// The TSIG key with which secondaries must sign their transfer queries; `None` without
    /// `--transfer-key`.
    pub key: Option<TsigKey>,
}

/// Invalid flags for transfers.
#[derive(Debug, Error)]
pub enum TransferError {
    /// A key without secondaries.
    #[error("--transfer-key is for the secondaries of --transfer-to, which is not given")]
    KeyWithoutPeers,
    /// The file cannot be read.
    #[error("cannot read --transfer-key {}", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    /// The file holds no valid key.
    #[error("--transfer-key {}", .0.display())]
    TsigKey(PathBuf, #[source] ParseTsigKeyError),
}

impl Options {
    /// The secondaries that may transfer zones; `None` without `--transfer-to`. Reads the key file.
    ///
    /// # Errors
    ///
    /// If a key file is given without secondaries, if the file cannot be read, or if the file has
    /// no valid key.
    pub fn transfers(&self) -> Result<Option<TransferTo>, TransferError> {
        let file = given(&self.transfer_key);
        // Without secondaries, a key enables no transfer.
        if self.transfer_to.is_empty() {
            return match file {
                Some(_) => Err(TransferError::KeyWithoutPeers),
                None => Ok(None),
            };
        }

        let key = file.map(|file| read_key(Path::new(file))).transpose()?;
        Ok(Some(TransferTo {
            peers: self.transfer_to.clone(),
            key,
        }))
    }
}

fn read_key(file: &Path) -> Result<TsigKey, TransferError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| TransferError::Read(file.to_owned(), error))?;
    TsigKey::parse(&text).map_err(|error| TransferError::TsigKey(file.to_owned(), error))
}
