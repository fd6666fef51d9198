//! Moments given by five fields: minute, hour, day of the month, month, day of the week. UTC, so that no hour is
//! missing or there twice. Lists, ranges, steps and English names; nothing beyond what every crontab knows.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::time::Timestamp;

/// Longest expression.
pub const CRON_CHARS_MAX: usize = 120;
/// Days that are searched for the next moment: a 29 February on a given day of the week is up to forty years away.
const CRON_DAYS_MAX: usize = 40 * 366;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// One of the five fields: what it is called, what it may hold, and the names of its values.
struct Field {
    name: &'static str,
    min: u8,
    max: u8,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", min: 0, max: 59, names: &[] },
    Field { name: "hour", min: 0, max: 23, names: &[] },
    Field { name: "day of the month", min: 1, max: 31, names: &[] },
    Field { name: "month", min: 1, max: 12, names: &MONTHS },
    // Sunday is 0, and 7 as well.
    Field { name: "day of the week", min: 0, max: 7, names: &WEEKDAYS },
];

/// A cron expression that was read: each field as a set of bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Does neither kind of day begin with a star? Then one of the two is enough, as in every crontab.
    either_day: bool,
}

impl Cron {
    /// The first moment after `moment` that fits; `None` if there is none in the next forty years.
    pub fn next_after(&self, moment: Timestamp) -> Option<Timestamp> {
        let first = Timestamp::from_millis(moment.as_millis() / 60_000 * 60_000 + 60_000).civil();
        let mut date = first.date();
        let mut from = (u64::from(first.hour().unsigned_abs()), u64::from(first.minute().unsigned_abs()));
        for _ in 0..CRON_DAYS_MAX {
            if self.fits(date)
                && let Some((hour, minute)) = self.time_from(from)
            {
                // The end of time is held, and nothing is after it.
                return Some(Timestamp::from_civil(date.at(hour, minute, 0, 0))).filter(|next| *next > moment);
            }
            date = date.tomorrow().ok()?;
            from = (0, 0);
        }
        None
    }

    fn fits(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        has(self.months, date.month()) && if self.either_day { day || weekday } else { day && weekday }
    }

    /// The first time of day that fits, from this hour and minute.
    fn time_from(&self, (hour, minute): (u64, u64)) -> Option<(i8, i8)> {
        let this_hour = has(self.hours, i8::try_from(hour).ok()?).then(|| lowest(self.minutes, minute)).flatten();
        match this_hour {
            Some(minute) => Some((i8::try_from(hour).ok()?, minute)),
            None => Some((lowest(self.hours, hour + 1)?, lowest(self.minutes, 0)?)),
        }
    }
}

fn has(set: u64, value: i8) -> bool {
    set & (1 << value) != 0
}

/// The lowest member of `set` that is not below `from`.
fn lowest(set: u64, from: u64) -> Option<i8> {
    let rest = set & u64::MAX.checked_shl(u32::try_from(from).ok()?)?;
    (rest != 0).then(|| i8::try_from(rest.trailing_zeros()).ok()).flatten()
}

impl FromStr for Cron {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > CRON_CHARS_MAX {
            return Err(format!("a cron expression may have {CRON_CHARS_MAX} characters, and this one has {}", text.len()));
        }
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = words[..] else {
            return Err(format!(
                "`{text}` has {} fields, and a cron expression has five: minute, hour, day of the month, month, day of the week",
                words.len()
            ));
        };
        let mut sets = [0u64; 5];
        for ((set, field), word) in sets.iter_mut().zip(&FIELDS).zip([minute, hour, day, month, weekday]) {
            *set = field.read(word).map_err(|reason| format!("`{text}`: {reason}"))?;
        }
        let [minutes, hours, days, months, weekdays] = sets;
        let weekdays = weekdays & 0x7f | weekdays >> 7;
        let either_day = !day.starts_with('*') && !weekday.starts_with('*');
        let cron = Self { text: words.join(" "), minutes, hours, days, months, weekdays, either_day };
        match cron.next_after(Timestamp::default()) {
            Some(_) => Ok(cron),
            None => Err(format!("`{text}` never comes: no such day is in any year")),
        }
    }
}

impl Field {
    /// The set that one field names.
    fn read(&self, word: &str) -> Result<u64, String> {
        word.split(',').try_fold(0, |set, item| Ok(set | self.read_item(item)?))
    }

    /// `*`, `7`, `7-9`, and any of them with a step: `*/2`, `7-19/4`; `7/4` goes on to the end.
    fn read_item(&self, item: &str) -> Result<u64, String> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (item, None),
        };
        let (low, high) = match range.split_once('-') {
            Some((low, high)) => (self.value(low)?, self.value(high)?),
            // Seven is another Sunday, and would be counted twice by a step.
            None if range == "*" => (self.min, if self.max == 7 { 6 } else { self.max }),
            None if step.is_some() => (self.value(range)?, self.max),
            None => (self.value(range)?, self.value(range)?),
        };
        if low > high {
            return Err(format!("the {} `{item}` ends before it begins", self.name));
        }
        let step = match step {
            None => 1,
            Some(step) => step
                .parse::<u8>()
                .ok()
                .filter(|step| *step > 0)
                .ok_or_else(|| format!("the step in the {} `{item}` is not 1 or more", self.name))?,
        };
        Ok((low..=high).step_by(usize::from(step)).fold(0, |set, value| set | 1 << value))
    }

    fn value(&self, word: &str) -> Result<u8, String> {
        if let Some(place) = self.names.iter().position(|name| word.eq_ignore_ascii_case(name)) {
            return u8::try_from(place).map(|place| place + self.min).map_err(|error| error.to_string());
        }
        let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        let value = word.parse::<u8>().ok().filter(|value| digits && (self.min..=self.max).contains(value));
        value.ok_or_else(|| format!("the {} `{word}` is not between {} and {}", self.name, self.min, self.max))
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Cron {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Cron {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Cron {
    fn schema_name() -> Cow<'static, str> {
        "Cron".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "maxLength": CRON_CHARS_MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_moment_is_the_first_that_fits_all_fields() {
        let table = [
            ("* * * * *", "2025-07-01T10:00:00Z", "2025-07-01T10:01:00Z"),
            ("* * * * *", "2025-07-01T10:00:59.999Z", "2025-07-01T10:01:00Z"),
            ("0 6 * * *", "2025-07-01T06:00:00Z", "2025-07-02T06:00:00Z"),
            ("0 6 * * *", "2025-07-01T05:59:59.999Z", "2025-07-01T06:00:00Z"),
            ("30 23 31 12 *", "2025-12-31T23:30:00Z", "2026-12-31T23:30:00Z"),
            ("0 0 31 * *", "2025-01-31T00:00:00Z", "2025-03-31T00:00:00Z"),
            ("0 0 29 2 *", "2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 29 2 *", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"),
            ("0 0 29 2 */7", "2088-02-29T00:00:00Z", "2128-02-29T00:00:00Z"),
            ("15,45 */6 1 jan-mar/2 *", "2025-01-01T18:45:00Z", "2025-03-01T00:15:00Z"),
            ("0 8 * * MON", "2025-07-01T00:00:00Z", "2025-07-07T08:00:00Z"),
            ("0 8 * * 7", "2025-07-01T00:00:00Z", "2025-07-06T08:00:00Z"),
            ("0 8 * * 5-7", "2025-07-05T08:00:00Z", "2025-07-06T08:00:00Z"),
            // Both kinds of day: either is enough.
            ("0 0 13 * 5", "2025-06-13T00:00:00Z", "2025-06-20T00:00:00Z"),
            ("0 0 1 * mon", "2025-07-28T00:00:00Z", "2025-08-01T00:00:00Z"),
            // A star with a step restricts, and both have to fit: the first odd day that is a Monday.
            ("0 0 */2 * 1", "2025-07-01T00:00:00Z", "2025-07-07T00:00:00Z"),
            ("50/4 0 * * *", "2025-07-01T00:50:00Z", "2025-07-01T00:54:00Z"),
        ];
        for (text, after, expected) in table {
            let cron: Cron = text.parse().unwrap();
            assert_eq!(cron.next_after(after.parse().unwrap()).unwrap().to_string(), expected, "{text} after {after}");
        }
    }

    #[test]
    fn what_no_crontab_knows_is_refused_with_its_field() {
        let table = [
            ("", "0 fields"),
            ("* * * *", "4 fields"),
            ("0 0 * * * 2025", "6 fields"),
            ("@daily", "1 fields"),
            ("60 * * * *", "minute `60`"),
            ("* 24 * * *", "hour `24`"),
            ("* * 0 * *", "day of the month `0`"),
            ("* * * 13 *", "month `13`"),
            ("* * * * 8", "day of the week `8`"),
            ("* * * juli *", "month `juli`"),
            ("*/0 * * * *", "step"),
            ("*/-1 * * * *", "step"),
            ("+5 * * * *", "minute `+5`"),
            ("30-10 * * * *", "ends before it begins"),
            ("1,,2 * * * *", "minute ``"),
            ("0 0 30 2 *", "never comes"),
            ("0 0 31 4,6,9,11 *", "never comes"),
        ];
        for (text, says) in table {
            let refused = text.parse::<Cron>().unwrap_err();
            assert!(refused.contains(says), "{text}: {refused}");
        }
        assert!("1,".repeat(100).parse::<Cron>().unwrap_err().contains("120"));
    }

    #[test]
    fn an_expression_survives_its_text() {
        let cron: Cron = "  0   6 *  * MON ".parse().unwrap();
        assert_eq!(cron.to_string(), "0 6 * * MON");
        assert_eq!(serde_json::from_str::<Cron>(&serde_json::to_string(&cron).unwrap()).unwrap(), cron);
        assert_eq!(cron.next_after(Timestamp::never()), None, "after the end of time there is nothing");
    }
}
