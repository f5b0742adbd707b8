//! A helper process that signals one dnsmasq process when the nanny cannot.
//!
//! * The helper signals a dnsmasq that runs as another user. To do so, the helper switches to that
//!   user. For this switch, the container needs the capability SETUID, which dnsmasq needs, too.
//!   The nanny keeps its own user and does not need the capability KILL.
//! * When the nanny has ended, the helper kills dnsmasq and its child processes, which answer over
//!   TCP. Without the helper, the kernel would kill only dnsmasq itself (see [`daemon::exec`]), and
//!   only if dnsmasq has not changed its user or group.
//!
//! The helper reads requests of one octet from standard input: the number of a signal,
//! [`KILL_GROUP`] or [`DISMISS`]. The response is one octet: the error number, or zero for success.
//! Only [`DISMISS`] has no response. The end of the input means that the nanny has ended.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, Uid, setresuid};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// The first argument of the helper's command line.
pub const SUBCOMMAND: &str = "__keep-dnsmasq";
/// Request: SIGKILL for dnsmasq and all its children.
const KILL_GROUP: u8 = u8::MAX;
/// Request: end without a signal. dnsmasq has ended, and its process ID may belong to another
/// process.
const DISMISS: u8 = 0;
/// Timeout of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The nanny's handle to the helper process.
#[derive(Debug)]
pub struct SignalHelper {
    child: Child,
    requests: ChildStdin,
    responses: ChildStdout,
    /// Number of requests whose responses have not been read. A response may come after its
    /// timeout.
    unread: usize,
}

impl SignalHelper {
    /// Starts the helper for the process `dnsmasq`, which must lead a process group.
    pub fn start(dnsmasq: Pid) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command
            .args([SUBCOMMAND, &dnsmasq.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A signal from the terminal must not reach the helper.
            .process_group(0);

        let mut child = command.spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(requests), Some(responses)) => Ok(Self {
                child,
                requests,
                responses,
                unread: 0,
            }),
            _ => Err(io::Error::other("the helper has no pipes")),
        }
    }

    /// Sends dnsmasq a signal.
    pub async fn send_signal(&mut self, signal: Signal) -> Result<(), Errno> {
        let number = u8::try_from(signal as i32).map_err(|_| Errno::EINVAL)?;
        self.request(number).await
    }

    /// Kills dnsmasq and all its children.
    pub async fn kill_group(&mut self) -> Result<(), Errno> {
        self.request(KILL_GROUP).await
    }

    async fn request(&mut self, request: u8) -> Result<(), Errno> {
        let exchange = async {
            self.requests.write_all(&[request]).await?;
            self.unread += 1;
            // Late responses to earlier requests arrive before the response to this request.
            loop {
                let response = self.responses.read_u8().await?;
                self.unread -= 1;
                if self.unread == 0 {
                    return Ok::<u8, io::Error>(response);
                }
            }
        };

        match timeout(RESPONSE_TIMEOUT, exchange).await {
            Ok(Ok(0)) => Ok(()),
            Ok(Ok(errno)) => Err(Errno::from_raw(errno.into())),
            // The helper has ended, or has not responded in time. The nanny asks the helper only
            // after the nanny's own kill(2) or killpg(3) has failed with EPERM, so the result is
            // EPERM again.
            Ok(Err(_)) | Err(_) => Err(Errno::EPERM),
        }
    }

    /// Ends the helper. Call this after dnsmasq has been waited for.
    pub async fn dismiss(mut self) {
        let _ = self.requests.write_all(&[DISMISS]).await;
        let _ = timeout(RESPONSE_TIMEOUT, self.child.wait()).await;
    }
}

/// Runs the helper process; `arguments` are the arguments after [`SUBCOMMAND`].
pub fn run_helper(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let id = arguments
        .next()
        .and_then(|id| id.to_string_lossy().parse().ok());
    // For kill(2), zero and negative numbers mean groups of processes; 1 is the first process of
    // the container.
    let Some(dnsmasq) = id.filter(|id| *id > 1).map(Pid::from_raw) else {
        return ExitCode::FAILURE;
    };

    let mut requests = io::stdin().lock();
    let mut responses = io::stdout().lock();
    let mut request = [DISMISS];
    while requests.read_exact(&mut request).is_ok() {
        let [request] = request;
        if request == DISMISS {
            return ExitCode::SUCCESS;
        }

        let response = error_number(serve_request(dnsmasq, request));
        let written = responses.write_all(&[response]);
        if written.and_then(|()| responses.flush()).is_err() {
            break;
        }
    }

    // The nanny has ended.
    let _ = run_as_owner(dnsmasq, || killpg(dnsmasq, Signal::SIGKILL));
    ExitCode::SUCCESS
}

fn serve_request(dnsmasq: Pid, request: u8) -> nix::Result<()> {
    if request == KILL_GROUP {
        return run_as_owner(dnsmasq, || killpg(dnsmasq, Signal::SIGKILL));
    }
    let signal = Signal::try_from(i32::from(request))?;
    run_as_owner(dnsmasq, || kill(dnsmasq, signal))
}

fn error_number(outcome: nix::Result<()>) -> u8 {
    match outcome {
        Ok(()) => 0,
        Err(errno) => u8::try_from(errno as i32).unwrap_or(u8::MAX),
    }
}

/// Runs `act`. If that fails with EPERM, changes to the user of `process` and runs `act` again.
fn run_as_owner(process: Pid, act: impl Fn() -> nix::Result<()>) -> nix::Result<()> {
    match act() {
        Err(Errno::EPERM) => {
            let owner = process_owner(process).ok_or(Errno::ESRCH)?;
            setresuid(owner, owner, owner)?;
            act()
        }
        done => done,
    }
}

/// Returns the real user of a process.
fn process_owner(process: Pid) -> Option<Uid> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let mut ids = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))?
        .split_ascii_whitespace();
    ids.next()?.parse().ok().map(Uid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A helper that answers its first request late, with an error, and its second with success.
    fn slow_helper() -> SignalHelper {
        let request = "dd bs=1 count=1 of=/dev/null 2>/dev/null";
        let script = format!("{request}; sleep 1.3; printf '\\001'; {request}; printf '\\000'");
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        SignalHelper {
            requests: child.stdin.take().unwrap(),
            responses: child.stdout.take().unwrap(),
            child,
            unread: 0,
        }
    }

    #[tokio::test]
    async fn late_response_does_not_answer_next_request() {
        let mut helper = slow_helper();
        let first = helper.send_signal(Signal::SIGHUP).await;
        assert_eq!(first, Err(Errno::EPERM), "the first request must time out");
        let second = helper.send_signal(Signal::SIGUSR1).await;
        assert_eq!(second, Ok(()));
    }
}
