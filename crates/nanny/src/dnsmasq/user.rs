//! The user that dnsmasq runs as.
//!
//! Started by root, dnsmasq changes to `nobody` (and a group of its choice). In a pod that seldom works or helps. The
//! stock manifest gives root no capability to change its user. With another user we could signal dnsmasq only through
//! [`crate::dnsmasq::keeper`], and after a change of user or group the kernel no longer kills dnsmasq when we die.
//! So, as in kube-dns' own image, dnsmasq keeps the nanny's user unless its arguments name another. To run dnsmasq as
//! another user than root, run the nanny as that user.

use nix::unistd::{Gid, Group, Uid, User};

/// The nanny's user: the properties that matter to dnsmasq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Root, with the names of its user and group; without arguments dnsmasq would change to others.
    Root { user: String, group: String },
    /// Not root (or root without a name): dnsmasq keeps its user and group.
    Other,
}

impl Identity {
    pub(crate) fn own() -> Self {
        let uid = Uid::effective();
        if !uid.is_root() {
            return Self::Other;
        }
        let user = User::from_uid(uid).ok().flatten().map(|user| user.name);
        let group = Group::from_gid(Gid::effective()).ok().flatten().map(|group| group.name);
        match (user, group) {
            (Some(user), Some(group)) => Self::Root { user, group },
            _ => Self::Other,
        }
    }
}
