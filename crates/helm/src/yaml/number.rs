//! Numbers as they travel: Go's JSON text of a number, read back.

use serde_json::{Number, Value};

/// The number a Go client sends for `float`: a whole one loses its fraction, so `1.0` arrives as `1`. `None` for
/// infinities and not-a-number.
pub(crate) fn from_float(float: f64) -> Option<Number> {
    // Go switches to an exponent from 1e21 on; below, whole floats look like integers on the wire.
    if float.fract() == 0.0 && float.abs() < 1e21 {
        // Like Go's, the shortest digits that read back, padded with zeros.
        let digits = float.to_string();
        if let Ok(int) = digits.parse::<i64>() {
            return Some(int.into());
        }
        if let Ok(int) = digits.parse::<u64>() {
            return Some(int.into());
        }
    }
    Number::from_f64(float)
}

/// The number a Go client sends for an unsigned integer: above `i64` it goes through a float.
#[allow(clippy::cast_precision_loss, reason = "the loss is what the Go client does")]
pub(crate) fn from_unsigned(int: u64) -> Option<Number> {
    i64::try_from(int).map_or_else(|_| from_float(int as f64), |int| Some(int.into()))
}

/// Brings every number of a JSON value to the form a Go client sends.
pub(crate) fn wire(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let sent = match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(_), ..) => None,
                (None, Some(int), _) => from_unsigned(int),
                (None, None, float) => float.and_then(from_float),
            };
            if let Some(sent) = sent {
                *number = sent;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(wire),
        Value::Object(map) => map.values_mut().for_each(wire),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// A float as a mapping key: Go's `%g` of its single-precision value.
#[allow(clippy::cast_possible_truncation, reason = "the Go library formats keys in single precision")]
pub(crate) fn key(float: f64) -> String {
    let single = float as f32;
    if single.is_nan() {
        return ".nan".to_owned();
    }
    if single.is_infinite() {
        return if single > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let scientific = format!("{single:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let Ok(power) = exponent.parse::<i32>() else { return scientific };
    if !(-4..6).contains(&power) {
        let sign = if power < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", power.abs());
    }
    single.to_string()
}

#[cfg(test)]
mod tests {
    use super::{from_float, from_unsigned, key};

    #[test]
    fn whole_floats_travel_as_integers() {
        assert_eq!(from_float(1.0), Some(1.into()));
        assert_eq!(from_float(-0.0), Some(0.into()));
        assert_eq!(from_float(1e3), Some(1000.into()));
        assert_eq!(from_float(1_152_921_504_606_846_976.0), Some(1_152_921_504_606_847_000_i64.into()), "shortest digits, padded");
        assert_eq!(from_float(0.1).unwrap().to_string(), "0.1");
        assert_eq!(from_float(f64::NAN), None);
        assert_eq!(from_unsigned(u64::MAX).unwrap().as_f64(), Some(18_446_744_073_709_552_000.0));
        assert_eq!(from_unsigned(1 << 63), Some(9_223_372_036_854_776_000_u64.into()));
    }

    #[test]
    fn float_keys_are_single_precision() {
        for (float, text) in
            [(1.5, "1.5"), (1e6, "1e+06"), (1e5, "100000"), (1e-5, "1e-05"), (0.0001, "0.0001"), (1e39, ".inf"), (0.1, "0.1")]
        {
            assert_eq!(key(float), text);
        }
    }
}
