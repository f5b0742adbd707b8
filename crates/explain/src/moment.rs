//! Points in time as text.

use std::fmt;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat};
use serde::{Deserialize, Serialize};

/// Seconds since 1970, displayed and serialized as RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    /// The time of a `creationTimestamp`; `None` for 0, which means that the object has no creation
    /// time.
    pub(crate) fn of_creation(seconds: u32) -> Option<Self> {
        (seconds != 0).then_some(Self(seconds.into()))
    }

    /// The age at `now` as text, rounded down to one unit.
    pub(crate) fn age_at(self, now: Self) -> String {
        let Some(seconds) = now.0.checked_sub(self.0) else {
            return "in the future".to_owned();
        };

        // A unit is used only if its count is at least two, except for seconds. Rounding down then
        // hides less than a third of the age.
        let (count, unit) = match seconds {
            0 => return "just now".to_owned(),
            1..=119 => (seconds, "second"),
            120..=7_199 => (seconds / 60, "minute"),
            7_200..=172_799 => (seconds / 3600, "hour"),
            _ => (seconds / 86_400, "day"),
        };
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {unit}{plural} ago")
    }
}

impl From<SystemTime> for Moment {
    fn from(time: SystemTime) -> Self {
        Self(
            time.duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or(Duration::ZERO)
                .as_secs(),
        )
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = i64::try_from(self.0)
            .ok()
            .and_then(|seconds| DateTime::from_timestamp(seconds, 0));
        match time {
            Some(time) => f.write_str(&time.to_rfc3339_opts(SecondsFormat::Secs, true)),
            // The time is beyond the calendar of `chrono`.
            None => write!(f, "@{}", self.0),
        }
    }
}

impl From<Moment> for String {
    fn from(moment: Moment) -> Self {
        moment.to_string()
    }
}

impl TryFrom<String> for Moment {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let time = DateTime::parse_from_rfc3339(&text).ok();
        let seconds = time.and_then(|time| u64::try_from(time.timestamp()).ok());
        seconds
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_text_has_at_most_one_unit() {
        let now = Moment(1_000_000);
        for (seconds, text) in [
            (1_000_001, "in the future"),
            (1_000_000, "just now"),
            (999_999, "1 second ago"),
            (999_881, "119 seconds ago"),
            (999_880, "2 minutes ago"),
            (992_800, "2 hours ago"),
            (827_200, "2 days ago"),
        ] {
            assert_eq!(Moment(seconds).age_at(now), text, "{seconds}");
        }
    }

    #[test]
    fn moment_text_parses_back() {
        let moment = Moment(1_762_070_400);
        assert_eq!(moment.to_string(), "2025-11-02T08:00:00Z");
        assert_eq!(Moment::try_from(moment.to_string()), Ok(moment));
        assert!(Moment::try_from("yesterday".to_owned()).is_err());
        assert!(Moment::try_from("1969-12-31T23:59:59Z".to_owned()).is_err());
    }
}
