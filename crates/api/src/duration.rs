//! Durations as policies write them: `30s`, `10m`, `1h30m`, `24h`.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A positive duration in Go's notation limited to `h`, `m`, `s` and `ms`, the units Kubernetes users write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a duration such as 30s, 10m or 1h30m")]
pub struct SpanError;

impl Span {
    /// A span of whole seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// A span of whole minutes.
    pub const fn minutes(minutes: u64) -> Self {
        Self(Duration::from_mins(minutes))
    }
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let mut total = Duration::ZERO;
        let mut rest = text;
        if rest.is_empty() {
            return Err(SpanError);
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or(SpanError)?;
            let (number, tail) = rest.split_at(digits);
            let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
            let (unit, next) = tail.split_at(unit_end);
            let number: u64 = number.parse().map_err(|_| SpanError)?;
            let millis_per_unit = match unit {
                "h" => 3_600_000,
                "m" => 60_000,
                "s" => 1_000,
                "ms" => 1,
                _ => return Err(SpanError),
            };
            let part = number.checked_mul(millis_per_unit).ok_or(SpanError)?;
            total = total.checked_add(Duration::from_millis(part)).ok_or(SpanError)?;
            rest = next;
        }
        // A century is beyond any use and keeps every later sum far from overflow.
        if total > Duration::from_hours(100 * 366 * 24) { Err(SpanError) } else { Ok(Self(total)) }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis == 0 {
            return f.write_str("0s");
        }
        for (size, unit) in [(3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")] {
            let larger = match unit {
                "h" => u128::MAX,
                "m" => 3_600_000,
                "s" => 60_000,
                _ => 1_000,
            };
            let count = (millis % larger) / size;
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for Span {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^([0-9]+(h|m|s|ms))+$", "maxLength": 32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints_what_people_write() {
        for (text, seconds, printed) in
            [("30s", 30, "30s"), ("10m", 600, "10m"), ("1h30m", 5400, "1h30m"), ("90s", 90, "1m30s"), ("24h", 86_400, "24h")]
        {
            let span: Span = text.parse().unwrap();
            assert_eq!(span, Span::seconds(seconds), "{text}");
            assert_eq!(span.to_string(), printed);
        }
        assert_eq!("1500ms".parse::<Span>().unwrap().to_string(), "1s500ms");
    }

    #[test]
    fn refuses_everything_else() {
        for text in ["", "10", "m", "-5m", "1.5h", "10 m", "1d", "99999999999999999999s", "9999999999h", "5m "] {
            assert!(text.parse::<Span>().is_err(), "{text:?}");
        }
    }
}
