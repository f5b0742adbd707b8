//! Text for the exit status of dnsmasq.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use daemon::exec::CANNOT_EXECUTE;
use nix::sys::signal::Signal;

/// Describes the status in one phrase. The meaning of an exit code is from dnsmasq(8), except for
/// [`CANNOT_EXECUTE`].
pub(crate) fn describe(status: ExitStatus) -> String {
    if let Some(number) = status.signal() {
        return describe_signal(number);
    }
    let Some(code) = status.code() else {
        return status.to_string();
    };
    let meaning = match code {
        0 => "no error",
        1 => "its arguments or configuration are wrong",
        2 => {
            "it cannot use the network: an address is in use, or a port below 1024 needs NET_BIND_SERVICE"
        }
        3 => "a file or directory is missing, or dnsmasq has no permission to use it",
        4 => "out of memory",
        5 => "a miscellaneous problem; for example, dnsmasq cannot switch to its unprivileged user",
        _ if code == i32::from(CANNOT_EXECUTE) => "it cannot be executed",
        11.. => "a script of --dhcp-script or --conf-script failed",
        _ => "dnsmasq's manual does not list this status",
    };
    format!("exit status {code} ({meaning})")
}

fn describe_signal(number: i32) -> String {
    let Ok(signal) = Signal::try_from(number) else {
        return format!("killed by signal {number}");
    };
    match signal {
        Signal::SIGSEGV | Signal::SIGBUS | Signal::SIGILL | Signal::SIGFPE | Signal::SIGABRT => {
            format!("a crash: killed by {signal}")
        }
        _ => format!("killed by {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_status_is_explained() {
        // Wait statuses: the exit code is in the high octet, the signal in the low octet.
        assert!(
            describe(ExitStatus::from_raw(2 << 8))
                .starts_with("exit status 2 (it cannot use the network")
        );
        assert_eq!(describe(ExitStatus::from_raw(9)), "killed by SIGKILL");
        let crash = "a crash: killed by SIGSEGV";
        assert_eq!(describe(ExitStatus::from_raw(11)), crash);
        for (code, meaning) in [
            (7, "dnsmasq's manual does not list this status"),
            (11, "a script of --dhcp-script or --conf-script failed"),
            (127, "it cannot be executed"),
        ] {
            let expected = format!("exit status {code} ({meaning})");
            assert_eq!(describe(ExitStatus::from_raw(code << 8)), expected);
        }
    }
}
