//! A moment in UTC, to the millisecond, that is always handed in: nothing below a main asks for it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, DateTime};
use jiff::tz::Offset;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Milliseconds since 1970-01-01T00:00:00Z. Written as RFC 3339 with `Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment `millis` after the epoch, held between that and the last moment that can be written.
    pub fn from_millis(millis: i64) -> Self {
        Self(millis.clamp(0, jiff::Timestamp::MAX.as_second() * 1000))
    }

    /// Milliseconds since the epoch.
    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, as signature schemes count them.
    pub fn as_seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// This moment moved by `ms`, which may be negative.
    #[must_use]
    pub fn plus_ms(self, ms: i64) -> Self {
        Self::from_millis(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this moment; zero if it lies in the future.
    pub fn since_ms(self, earlier: Timestamp) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// The last moment that can be written: what is due then is never due.
    pub fn never() -> Self {
        Self::from_millis(i64::MAX)
    }

    /// The year in UTC.
    pub fn year(self) -> i16 {
        self.civil().year()
    }

    /// What calendars and clocks in UTC show at this moment.
    pub(crate) fn civil(self) -> DateTime {
        Offset::UTC.to_datetime(jiff::Timestamp::from_millisecond(self.0).unwrap_or_default())
    }

    /// The moment at which calendars and clocks in UTC show this; held between the ends of time.
    pub(crate) fn from_civil(civil: DateTime) -> Self {
        Offset::UTC.to_timestamp(civil).map_or_else(|_| Self::never(), |moment| Self::from_millis(moment.as_millisecond()))
    }

    /// The first moment of a UTC day.
    pub(crate) fn midnight(date: Date) -> Self {
        Self::from_civil(date.at(0, 0, 0, 0))
    }

    /// The UTC day, `2025-12-20`.
    pub fn date(self) -> String {
        self.to_string().chars().take(10).collect()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        write!(f, "{moment}")
    }
}

impl FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let moment: jiff::Timestamp = text.parse().map_err(|_| format!("`{text}` is not a time such as 2025-12-20T04:02:11Z"))?;
        Ok(Self::from_millis(moment.as_millisecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time", "pattern": "Z$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_survives_its_text() {
        for text in ["2025-12-20T04:02:11Z", "2025-12-20T04:02:11.25Z", "1970-01-01T00:00:00Z"] {
            assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), text);
        }
        assert!("yesterday".parse::<Timestamp>().is_err());
        assert_eq!("2025-12-20T04:02:11+01:00".parse::<Timestamp>().unwrap().to_string(), "2025-12-20T03:02:11Z");
    }

    #[test]
    fn the_ends_of_time_are_held() {
        assert_eq!(Timestamp::from_millis(i64::MAX).plus_ms(i64::MAX).date(), "9999-12-30");
        assert_eq!(Timestamp::from_millis(i64::MIN).to_string(), "1970-01-01T00:00:00Z");
    }
}
