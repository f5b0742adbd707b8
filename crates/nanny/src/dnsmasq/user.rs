//! As whom dnsmasq runs.
//!
//! Started by root, dnsmasq changes to `nobody` (and a group of its choice). In a pod that seldom works or helps: the
//! stock manifest leaves root without the capability to change its user, without another we could signal dnsmasq only by
//! way of [`crate::dnsmasq::keeper`], and after any change of user or group the kernel no longer kills dnsmasq when we die. So, as in kube-dns'
//! own image, dnsmasq stays what the nanny is, unless its arguments say otherwise. To have it run as somebody else than
//! root, run the nanny as somebody else.

use nix::unistd::{Gid, Group, Uid, User};

/// Who we are, as far as dnsmasq cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Root, with the names of its user and group: dnsmasq would change to others.
    Root { user: String, group: String },
    /// Not root (or root without a name): dnsmasq changes nothing, or cannot be told.
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
