//! Canonical JSON agrees with the examples of RFC 8785, so that others compute the same digests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking too")]

use serde_json::{Value, json};
use tidemark_domain::canon::to_canonical;

fn canonical(value: &Value) -> String {
    String::from_utf8(to_canonical(value).unwrap()).unwrap()
}

#[test]
fn literals_numbers_and_strings_are_written_as_section_3_2_2_says() {
    let input = json!({
        "numbers": [333_333_333.333_333_3, 1e30, 4.50, 2e-3, 1e-27],
        "string": "\u{20ac}$\u{f}\nA'B\"\\\\\"/",
        "literals": [null, true, false],
    });
    let expected =
        r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
    assert_eq!(canonical(&input), expected);
}

#[test]
fn members_are_sorted_by_utf_16_units_as_section_3_2_3_says() {
    let input = json!({ "\u{20ac}": 1, "\r": 2, "\u{fb33}": 3, "1": 4, "\u{1f600}": 5, "\u{80}": 6, "\u{f6}": 7 });
    // The emoji is a surrogate pair, which sorts before U+FB33 although its code point is higher.
    assert_eq!(canonical(&input), "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}");
}

#[test]
fn numbers_are_written_as_appendix_b_says() {
    for (bits, expected) in [
        (0x0000_0000_0000_0000_u64, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
    ] {
        assert_eq!(canonical(&json!(f64::from_bits(bits))), expected, "{bits:016x}");
    }
}
