//! The user that dnsmasq runs as.
//!
//! By default, a dnsmasq started by root changes to the user `nobody` and to another group. The
//! stock manifest gives root no capability to change its user. The nanny can signal a dnsmasq with
//! another user only through [`crate::dnsmasq::keeper`]. After a change of user or group, the
//! kernel does not kill dnsmasq when the nanny dies. So, as in the image of kube-dns, dnsmasq keeps
//! the nanny's user unless the arguments name another user. To run dnsmasq without root, run the
//! nanny as another user.

use nix::unistd::{Gid, Group, Uid, User};

/// The nanny's user: the properties that matter to dnsmasq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Root, with the names of its user and group. The nanny passes both names to dnsmasq, so that
    /// dnsmasq keeps them.
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
        let group = Group::from_gid(Gid::effective())
            .ok()
            .flatten()
            .map(|group| group.name);
        match (user, group) {
            (Some(user), Some(group)) => Self::Root { user, group },
            _ => Self::Other,
        }
    }
}
