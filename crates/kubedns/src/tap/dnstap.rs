//! Sends every query and its response to a dnstap reader, as protobuf messages in Frame Streams
//! (<https://dnstap.info>).
//!
//! kubedns connects to the reader, and reconnects with growing pauses. Without a connection no
//! queries are copied. A slow reader loses messages; `kubedns_tap_records_total` counts them.

mod frames;
mod message;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use dnsconfig::query_log::Filter;
use skydns::tap::{QueryTap, TapWatch, WatchSettings};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::frames::{FINISH, READY, START, STOP, control, data};
use self::message::Sender;

/// The pause after the first failure. Each failure doubles the pause, up to `LAST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_mins(1);
/// Timeout of a connection with its handshake, and of each write.
const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout of the STOP handshake at shutdown.
const ENDING: Duration = Duration::from_secs(1);
/// Approximate size of a write, in octets.
const CHUNK: usize = 64 << 10;

/// Address of a dnstap reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A unix socket.
    Unix(PathBuf),
    /// `HOST:PORT`
    Tcp(String),
}

/// Invalid address of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unix:///PATH and tcp://HOST:PORT are accepted")]
pub struct ReaderError;

/// `--dnstap`; `None` if the flag is not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output(pub Option<Reader>);

impl FromStr for Output {
    type Err = ReaderError;

    fn from_str(text: &str) -> Result<Self, ReaderError> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let unix = || {
            text.strip_prefix("unix://")
                .filter(|path| path.starts_with('/') && path.len() > 1)
        };
        let is_address = |address: &&str| {
            address.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
            })
        };
        let tcp = || {
            text.strip_prefix("tcp://")
                .filter(is_address)
                .map(|address| Reader::Tcp(address.to_owned()))
        };
        unix()
            .map(|path| Reader::Unix(path.into()))
            .or_else(tcp)
            .map(|reader| Self(Some(reader)))
            .ok_or(ReaderError)
    }
}

impl Reader {
    async fn connect(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Self::Tcp(address) => Box::new(TcpStream::connect(address).await?),
        })
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Failure of a connection.
#[derive(Debug, thiserror::Error)]
enum DnstapError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("the reader took longer than {PATIENCE:?}")]
    Slow(#[from] tokio::time::error::Elapsed),
    #[error("the reader does not accept dnstap")]
    Refused,
    #[error("the reader closed the connection")]
    Closed,
    #[error(transparent)]
    Watches(#[from] skydns::tap::TooManyWatches),
}

/// Sends answered queries to the reader until `stop`. Messages contain `version`, the name and
/// version of this server.
pub(crate) async fn run(
    reader: Reader,
    tap: Arc<QueryTap>,
    version: String,
    stop: CancellationToken,
) {
    let sender = Sender::new(version);
    let mut pause = FIRST_PAUSE;
    while !stop.is_cancelled() {
        let connected = timeout(PATIENCE, connect(&reader))
            .await
            .map_err(DnstapError::from);
        let error = match connected.and_then(|connected| connected) {
            Ok(stream) => {
                tracing::info!(?reader, "dnstap reader connected");
                pause = FIRST_PAUSE;
                match send(stream, &tap, &sender, &stop).await {
                    Ok(()) => return,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        tracing::warn!(
            ?reader,
            error = &error as &dyn std::error::Error,
            ?pause,
            "no dnstap reader, trying again"
        );
        stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Connects to the reader, and negotiates the content type.
async fn connect(reader: &Reader) -> Result<Box<dyn Stream>, DnstapError> {
    let mut stream = reader.connect().await?;
    stream.write_all(&control(READY)).await?;
    if !frames::read_control(&mut stream).await?.accepts() {
        return Err(DnstapError::Refused);
    }
    stream.write_all(&control(START)).await?;
    Ok(stream)
}

/// Sends answered queries until `stop` or an error.
async fn send(
    mut stream: Box<dyn Stream>,
    tap: &Arc<QueryTap>,
    sender: &Sender,
    stop: &CancellationToken,
) -> Result<(), DnstapError> {
    let mut watch = tap.open_watch(WatchSettings {
        filter: Filter::default(),
        rate: u32::MAX,
        messages: true,
    })?;
    let mut unexpected = [0; 64];
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            read = stream.read(&mut unexpected) => {
                read?;
                return Err(DnstapError::Closed);
            }
            chunk = chunk(&mut watch, sender) => timeout(PATIENCE, stream.write_all(&chunk)).await??,
        }
    }
    // The reader may fail to confirm the end of the stream; all frames are sent by then.
    let _ = timeout(ENDING, async {
        stream.write_all(&control(STOP)).await?;
        frames::read_control(&mut stream)
            .await
            .map(|control| control.kind == FINISH)
    })
    .await;
    Ok(())
}

/// The frames of the next records, up to about `CHUNK` octets.
async fn chunk(watch: &mut TapWatch, sender: &Sender) -> Vec<u8> {
    let mut chunk = Vec::new();
    let mut next = Some(watch.next_record().await);
    while let Some(record) = next {
        for message in sender.messages(&record).into_iter().flatten() {
            data(&message, &mut chunk);
        }
        next = if chunk.len() < CHUNK {
            watch.take_record()
        } else {
            None
        };
    }
    chunk
}

#[cfg(test)]
mod tests;
