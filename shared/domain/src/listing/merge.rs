//! What a new listing means beside what is known. Pure, one URI at a time: the streams are sorted, so that this is all
//! that has to be in memory.

use super::Entry;

/// Where an entry goes when a listing is taken up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// It is known to be there.
    Known(&'a Entry<'a>),
    /// A complete listing lacked it, once.
    Missing(&'a Entry<'a>),
    /// Two complete listings in a row lacked it: it is missing for as long as its head has bytes. A listing may have
    /// been wrong twice, and then the handler found it where it was.
    Gone(&'a Entry<'a>),
    /// Nothing was ever known of it.
    Nowhere,
}

/// Where an entry goes that was known, was missing once, or is listed now. Only a complete listing says that anything
/// is missing; an incomplete one leaves all that it lacks as it was.
pub fn place<'a>(known: Option<&'a Entry<'a>>, missing: Option<&'a Entry<'a>>, listed: Option<&'a Entry<'a>>, complete: bool) -> Place<'a> {
    match (listed, known, missing) {
        (Some(listed), _, _) => Place::Known(listed),
        (None, Some(known), _) if complete => Place::Missing(known),
        (None, Some(known), _) => Place::Known(known),
        (None, None, Some(missing)) if complete => Place::Gone(missing),
        (None, None, Some(missing)) => Place::Missing(missing),
        (None, None, None) => Place::Nowhere,
    }
}

/// What there is to say about an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News<'a> {
    /// Nothing.
    Nothing,
    /// It was not known.
    Added(&'a Entry<'a>),
    /// It is another version than the one that was known.
    Changed(&'a Entry<'a>, &'a Entry<'a>),
    /// Two complete listings in a row lack it.
    Removed(&'a Entry<'a>),
}

/// What is new about an entry, from what was known and missing before, and what is known and missing now, after a
/// listing that was complete or not.
pub fn news<'a>(
    known: Option<&'a Entry<'a>>,
    missing: Option<&'a Entry<'a>>,
    known_now: Option<&'a Entry<'a>>,
    missing_now: Option<&'a Entry<'a>>,
    complete: bool,
) -> News<'a> {
    match (known.or(missing), known_now) {
        (None, Some(now)) => News::Added(now),
        // What was missing may have been handled as deleted, also by a look that died: it is news as it comes back.
        (Some(before), Some(now)) if known.is_none() || before.differs(now) => News::Changed(before, now),
        (Some(_), Some(_)) | (None, None) => News::Nothing,
        (Some(before), None) if complete && known.is_none() && missing_now.is_some() => News::Removed(before),
        (Some(_), None) => News::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(version: &'static str) -> Entry<'static> {
        Entry { uri: "u".into(), version: Some(version.into()), ..Entry::default() }
    }

    #[test]
    fn only_two_complete_listings_in_a_row_make_an_entry_disappear() {
        let (a, b) = (entry("a"), entry("b"));
        let table = [
            // known, missing, listed, complete: where it goes
            (None, None, Some(&a), true, Place::Known(&a)),
            (Some(&a), None, Some(&b), false, Place::Known(&b)),
            (Some(&a), None, None, true, Place::Missing(&a)),
            (Some(&a), None, None, false, Place::Known(&a)),
            (None, Some(&a), None, true, Place::Gone(&a)),
            (None, Some(&a), None, false, Place::Missing(&a)),
            (None, Some(&a), Some(&b), true, Place::Known(&b)),
        ];
        for (known, missing, listed, complete, expected) in table {
            assert_eq!(place(known, missing, listed, complete), expected, "{known:?} {missing:?} {listed:?} {complete}");
        }
    }

    #[test]
    fn an_entry_is_news_if_it_is_new_or_differs_or_comes_back() {
        let (a, b) = (entry("a"), entry("b"));
        let table = [
            (None, None, Some(&a), None, News::Added(&a)),
            (Some(&a), None, Some(&a), None, News::Nothing),
            (Some(&a), None, Some(&b), None, News::Changed(&a, &b)),
            (Some(&a), None, None, Some(&a), News::Nothing),
            (None, Some(&a), Some(&a), None, News::Changed(&a, &a)),
            (None, Some(&a), Some(&b), None, News::Changed(&a, &b)),
            // Missing again, and its head still has bytes; and once that is settled.
            (None, Some(&a), None, Some(&a), News::Removed(&a)),
            (None, Some(&a), None, None, News::Nothing),
        ];
        for (known, missing, now, missing_now, expected) in table {
            let found = news(known, missing, now, missing_now, true);
            assert_eq!(found, expected, "{known:?} {missing:?} {now:?} {missing_now:?}");
            let incomplete = news(known, missing, now, missing_now, false);
            assert!(!matches!(incomplete, News::Removed(_)), "an incomplete listing removes nothing");
        }
    }
}
