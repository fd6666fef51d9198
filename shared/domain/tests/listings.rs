//! Every format, with pages as servers write them: what is read out of them, in whatever pieces they come, and what is
//! refused.
#![expect(clippy::unwrap_used, reason = "shared by the tests below")]

use tidemark_domain::listing::{DEPTH_MAX, ENTRY_BYTES_MAX, Entry, ListingFormat, ListingPlan, Page, PageEnd, Walk, resolved};
use tidemark_domain::{Fault, Sha256Digest};
use url::Url;

const PAGE: &str = "https://example.org/data/";

/// Entries as `uri | version | digest? | size`, with their addresses resolved.
fn read(plan: &ListingPlan, page: &str, text: &str, step: usize) -> Result<(Vec<String>, PageEnd), Fault> {
    let url = Url::parse(page).unwrap();
    let (mut reader, mut found) = (Page::open(plan, &url, None), Vec::new());
    let mut take = |entry: Entry<'_>| {
        let uri = resolved(plan, Some(&url), &entry.uri)?.into_owned();
        let version = entry.version.as_deref().unwrap_or("-");
        let digest = if entry.checksum_sha256.is_some() { "digest" } else { "-" };
        found.push(format!("{uri} | {version} | {digest} | {}", entry.size_bytes.map_or("-".into(), |size| size.to_string())));
        Ok(())
    };
    for piece in text.as_bytes().chunks(step) {
        reader.push(piece, &mut take)?;
    }
    let end = reader.finish(&mut take)?;
    Ok((found, end))
}

/// The same in pieces of every size.
fn all(plan: &ListingPlan, page: &str, text: &str) -> (Vec<String>, PageEnd) {
    let whole = read(plan, page, text, usize::MAX).unwrap();
    for step in [1, 2, 3, 5, 64, 1000] {
        assert_eq!(read(plan, page, text, step).unwrap(), whole, "in pieces of {step}");
    }
    whole
}

fn refused(format: ListingFormat, text: &str) -> String {
    let plan = ListingPlan::of(format);
    let codes: Vec<_> = [1, 100_000].map(|step| read(&plan, PAGE, text, step).map(|read| read.0).unwrap_err().code.into_owned()).into();
    assert_eq!(codes[0], codes[1], "{text}");
    codes[0].clone()
}

fn digest() -> String {
    Sha256Digest::of(b"x").to_string()
}

#[test]
fn json_lines_have_the_members_of_a_manifest_or_names_of_their_own() {
    let plan = ListingPlan::of(ListingFormat::JsonLines);
    let text = format!(
        "{{\"uri\":\"https://e.org/a\",\"version\":\"\\\"t\\\"\",\"checksum_sha256\":\"{}\",\"size_bytes\":7,\"more\":[1]}}\r\n\n{{\"uri\":\"b\"}}",
        digest()
    );
    let expected = ["https://e.org/a | \"t\" | digest | 7", "https://example.org/data/b | - | - | -"];
    assert_eq!(all(&plan, PAGE, &text).0, expected);
    let mut named = plan.clone();
    (named.fields.uri, named.fields.version) = (Some("path".into()), Some("rev".into()));
    assert_eq!(all(&named, PAGE, "{\"path\":\"c\",\"rev\":12,\"size_bytes\":\"5\"}\n").0, ["https://example.org/data/c | 12 | - | 5"]);
    for bad in [
        "{\"uri\":\"a\"",
        "[]",
        "{}",
        "{\"uri\":5}",
        "{\"uri\":\"a\",\"size_bytes\":-1}",
        "{\"uri\":\"a\",\"uri\":\"b\"}",
        "{\"uri\":\"\"}",
    ] {
        assert_eq!(refused(ListingFormat::JsonLines, bad), "listing.malformed", "{bad}");
    }
    assert_eq!(refused(ListingFormat::JsonLines, &"x".repeat(ENTRY_BYTES_MAX + 1)), "listing.too_large");
}

#[test]
fn csv_is_read_by_its_header_and_quotes_hold_anything() {
    let plan = ListingPlan::of(ListingFormat::Csv);
    let text = "\u{feff}Key,ETag,size\r\n\"a,\"\"1\"\".csv\",t1,10\r\nb.csv,,\r\n\r\n\"c.csv\",\"t\",3";
    let expected = [
        "https://example.org/data/a,%221%22.csv | t1 | - | 10",
        "https://example.org/data/b.csv | - | - | -",
        "https://example.org/data/c.csv | t | - | 3",
    ];
    assert_eq!(all(&plan, PAGE, text).0, expected);
    assert!(all(&plan, PAGE, "url,size\n").0.is_empty(), "a header alone is an empty listing");
    for bad in ["", "name,size\na,1\n", "uri,size\na\n", "uri\n\"a", "uri\n\"a\"b\n", "uri,size\na,many\n"] {
        assert_eq!(refused(ListingFormat::Csv, bad), "listing.malformed", "{bad}");
    }
}

const NGINX: &str = "<html>\r\n<head><title>Index of /data/</title></head>\r\n<body>\r\n<h1>Index of /data/</h1><hr><pre><a href=\"../\">../</a>\r\n\
<a href=\"2026/\">2026/</a>                   01-Nov-2026 09:00       -\r\n\
<a href=\"a%20b.csv\">a b.csv</a>                 02-Nov-2026 10:11     12345\r\n\
<a href=\"c&amp;d.zip\">c&amp;d.zip</a>                 03-Nov-2026 10:11       9\r\n</pre><hr></body>\r\n</html>\r\n";
const APACHE: &str = "<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 3.2 Final//EN\">\n<html>\n <head>\n  <title>Index of /data</title>\n </head>\n <body>\n\
<h1>Index of /data</h1>\n  <table>\n   <tr><th><a href=\"?C=N;O=D\">Name</a></th><th><a href=\"?C=M;O=A\">Last modified</a></th></tr>\n\
<tr><td><a href=\"/\">Parent Directory</a></td><td>&nbsp;</td><td align=\"right\">  - </td></tr>\n\
<tr><td><a href=\"a.csv\">a.csv</a></td><td align=\"right\">2026-11-02 10:11  </td><td align=\"right\">1.2M</td></tr>\n\
</table>\n<address>Apache <a href=\"https://elsewhere.example/x\">here</a></address>\n</body></html>\n";

#[test]
fn directory_indexes_list_what_is_below_them_and_lead_to_their_folders() {
    let plan = ListingPlan::of(ListingFormat::Html);
    let (entries, end) = all(&plan, PAGE, NGINX);
    let expected = [
        "https://example.org/data/a%20b.csv | 02-Nov-2026 10:11 12345 | - | 12345",
        "https://example.org/data/c&d.zip | 03-Nov-2026 10:11 9 | - | 9",
    ];
    assert_eq!(
        (entries.as_slice(), end.more.as_slice()),
        (&expected.map(str::to_owned)[..], &["https://example.org/data/2026/".to_owned()][..])
    );
    let (entries, end) = all(&plan, PAGE, APACHE);
    assert_eq!((entries, end.more), (vec!["https://example.org/data/a.csv | 2026-11-02 10:11 1.2M | - | -".to_owned()], vec![]));
    assert_eq!(refused(ListingFormat::Html, "<html><title>Down for maintenance</title><a href=\"a\">x</a></html>"), "listing.malformed");
    assert_eq!(refused(ListingFormat::Html, NGINX.trim_end().trim_end_matches("</html>")), "listing.truncated");
}

const S3: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix>drops/</Prefix>\
<NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J==</NextContinuationToken><KeyCount>2</KeyCount><MaxKeys>2</MaxKeys><IsTruncated>true</IsTruncated>\
<Contents><Key>drops/a &amp; b.csv</Key><LastModified>2026-11-02T10:11:12.000Z</LastModified><ETag>&quot;9b2cf5&quot;</ETag><Size>434</Size><StorageClass>STANDARD</StorageClass></Contents>\
<Contents><Key>drops/\u{fc}.csv</Key><LastModified>2026-11-02T10:11:12.000Z</LastModified><ETag>\"f00\"</ETag><Size>0</Size><Owner><ID>x</ID></Owner></Contents></ListBucketResult>";

#[test]
fn s3_pages_say_how_to_go_on_and_whether_they_are_whole() {
    let plan = ListingPlan::of(ListingFormat::S3);
    let page = "https://s3.example.org/bucket?list-type=2&prefix=drops%2F";
    let (entries, end) = all(&plan, page, S3);
    let expected = [
        "https://s3.example.org/bucket/drops/a%20%26%20b.csv | \"9b2cf5\" | - | 434",
        "https://s3.example.org/bucket/drops/%C3%BC.csv | \"f00\" | - | 0",
    ];
    assert_eq!(entries, expected);
    assert_eq!(
        end.more,
        ["https://s3.example.org/bucket?list-type=2&prefix=drops%2F&continuation-token=1ueGcxLPRx1Tr%2FXYExHnhbYLgveDs2J%3D%3D"]
    );
    assert_eq!(end.incomplete, None);
    let encoded = S3.replace("drops/a &amp; b.csv", "drops/a+%26+b.csv");
    assert_eq!(all(&plan, &format!("{page}&encoding-type=url"), &encoded).0[0], expected[0]);
    for (from, to) in [
        ("<IsTruncated>true</IsTruncated>", ""),
        ("<KeyCount>2</KeyCount>", "<KeyCount>3</KeyCount>"),
        ("<NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J==</NextContinuationToken>", ""),
    ] {
        assert!(all(&plan, page, &S3.replace(from, to)).1.incomplete.is_some(), "{from}");
    }
    assert_eq!(refused(ListingFormat::S3, "<Error><Code>AccessDenied</Code></Error>"), "listing.malformed");
    assert_eq!(refused(ListingFormat::S3, &S3[..S3.len() - 5]), "listing.truncated");
    assert_eq!(refused(ListingFormat::S3, "<!DOCTYPE x [<!ENTITY a \"b\">]><ListBucketResult>&a;</ListBucketResult>"), "listing.malformed");
    assert_eq!(refused(ListingFormat::S3, "<ListBucketResult>&lol;</ListBucketResult>"), "listing.malformed");
    assert_eq!(refused(ListingFormat::S3, "<ListBucketResult><a></b></ListBucketResult>"), "listing.malformed");
    assert_eq!(refused(ListingFormat::S3, &"<a>".repeat(DEPTH_MAX + 1)), "listing.too_large");
}

#[test]
fn sitemaps_and_their_indexes_are_read() {
    let plan = ListingPlan::of(ListingFormat::Sitemap);
    let urls = "<?xml version='1.0'?><!-- made by hand --><urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n<url><loc>https://example.org/a?x=1&amp;y=2</loc><lastmod>2026-11-01</lastmod></url>\n<url><loc><![CDATA[https://example.org/b]]></loc></url></urlset>";
    assert_eq!(all(&plan, PAGE, urls).0, ["https://example.org/a?x=1&y=2 | 2026-11-01 | - | -", "https://example.org/b | - | - | -"]);
    let index = "<sitemapindex><sitemap><loc>https://example.org/1.xml</loc></sitemap><sitemap><loc>https://example.org/2.xml</loc></sitemap></sitemapindex>";
    let (entries, end) = all(&plan, PAGE, index);
    assert_eq!((entries.len(), end.more), (0, vec!["https://example.org/1.xml".to_owned(), "https://example.org/2.xml".to_owned()]));
    assert_eq!(refused(ListingFormat::Sitemap, "<html><body/></html>"), "listing.malformed");
}

#[test]
fn a_manifest_is_read_with_its_checksum() {
    let plan = ListingPlan::of(ListingFormat::Manifest);
    let text = format!(
        "{{\n \"manifest_id\": \"man_x\", \"listing_basis\": \"git-tree\",\n \"entries\": [ {{\"uri\":\"s3://b/a\",\"version\":\"v1\"}} ,\n {{\"uri\":\"s3://b/b\"}} ],\n \"manifest_checksum_sha256\": \"sha256:{}\" }}",
        digest()
    );
    let (entries, end) = all(&plan, PAGE, &text);
    assert_eq!(entries, ["s3://b/a | v1 | - | -", "s3://b/b | - | - | -"]);
    assert_eq!(end.checksum.map(|(digest, _)| digest), Some(Sha256Digest::of(b"x")));
    assert_eq!(refused(ListingFormat::Manifest, "{\"entries\":[]}"), "listing.malformed");
}

#[test]
fn catalogs_list_their_files_and_their_items() {
    let dcat = format!(
        r#"{{"conformsTo":"https://project-open-data.cio.gov/v1.1/schema","dataset":[
        {{"title":"A","modified":"2026-10-01","distribution":[{{"downloadURL":"https://e.org/a.csv","mediaType":"text/csv"}},{{"accessURL":"https://e.org/api"}}]}},
        {{"title":"B"}},
        {{"title":"C","modified":"R/P1D","distribution":[{{"downloadURL":"https://e.org/c.zip","modified":"2026-11-02","byteSize":5,"checksum":{{"algorithm":"SHA-256","checksumValue":"{}"}}}}]}}]}}"#,
        digest().to_uppercase()
    );
    let expected = ["https://e.org/a.csv | 2026-10-01 | - | -", "https://e.org/c.zip | 2026-11-02 | digest | 5"];
    assert_eq!(all(&ListingPlan::of(ListingFormat::Dcat), PAGE, &dcat).0, expected);

    let stac = ListingPlan::of(ListingFormat::Stac);
    let items = r#"{"type":"FeatureCollection","features":[{"id":"i1","properties":{"updated":"2026-11-01T00:00:00Z"},"links":[{"rel":"parent","href":"../c.json"},{"rel":"self","href":"https://e.org/i1"}]}],
        "links":[{"rel":"self","href":"x"},{"rel":"next","href":"?token=2"}],"numberMatched":9}"#;
    let (entries, end) = all(&stac, PAGE, items);
    assert_eq!((entries, end.total), (vec!["https://e.org/i1 | 2026-11-01T00:00:00Z | - | -".to_owned()], Some(9)));
    assert_eq!(end.more, ["https://example.org/data/?token=2"]);
    let links = ListingPlan { entries: Some("/links".into()), ..stac };
    let catalog = r#"{"stac_version":"1.1.0","links":[{"rel":"root","href":"./catalog.json"},{"rel":"item","href":"./i/1.json"},{"rel":"child","href":"./c/collection.json"}]}"#;
    assert_eq!(
        all(&links, PAGE, catalog).0,
        ["https://example.org/data/i/1.json | - | - | -", "https://example.org/data/c/collection.json | - | - | -"]
    );
}

#[test]
fn a_git_tree_is_whole_only_if_the_forge_says_so() {
    let plan = ListingPlan { base: Some("https://raw.example.org/o/r/main".into()), ..ListingPlan::of(ListingFormat::GitTree) };
    let tree = |truncated: &str| {
        format!(
            r#"{{"sha":"c0ffee","tree":[{{"path":"src","mode":"040000","type":"tree","sha":"1"}},{{"path":"src/a b#1.rs","mode":"100644","type":"blob","size":30,"sha":"7c258a9869f33c1e1e1f74fbb32f07c86cb5a75b"}},{{"path":"sub","type":"commit","sha":"2"}}]{truncated}}}"#
        )
    };
    let (entries, end) = all(&plan, PAGE, &tree(r#","truncated":false"#));
    assert_eq!(entries, ["https://raw.example.org/o/r/main/src/a%20b%231.rs | 7c258a9869f33c1e1e1f74fbb32f07c86cb5a75b | - | 30"]);
    assert_eq!(end.incomplete, None);
    for truncated in [r#","truncated":true"#, ""] {
        assert!(all(&plan, PAGE, &tree(truncated)).1.incomplete.is_some(), "{truncated}");
    }
}

/// A paged API as `json` describes it.
fn api() -> ListingPlan {
    let pointer = |text: &str| Some(text.to_owned());
    let mut plan = ListingPlan { entries: pointer("/result/items"), next: pointer("/next"), ..ListingPlan::of(ListingFormat::Json) };
    (plan.total, plan.generation, plan.cursor) = (pointer("/total"), pointer("/snapshot"), pointer("/id"));
    (plan.fields.uri, plan.fields.version) = (pointer("/links/self"), pointer("/etag"));
    plan
}

#[test]
fn pages_of_an_api_are_read_by_pointers() {
    let text = r#"{"total":3,"snapshot":7,"next":"?page=2","result":{"items":[{"id":1,"etag":5,"links":{"self":"a"}},{"id":10,"links":{"self":"b"}}]}}"#;
    let (entries, end) = all(&api(), PAGE, text);
    assert_eq!(entries, ["https://example.org/data/a | 5 | - | -", "https://example.org/data/b | - | - | -"]);
    assert_eq!((end.total, end.generation.as_deref(), end.incomplete), (Some(3), Some("7"), None));
    assert_eq!(end.more, ["https://example.org/data/?page=2"]);
    let token = ListingPlan { next_parameter: Some("cursor".into()), ..api() };
    let page = "https://example.org/data/?cursor=old&size=2";
    assert_eq!(all(&token, page, &text.replace("?page=2", "n&1")).1.more, ["https://example.org/data/?size=2&cursor=n%261"]);
    let back = text.replace("\"id\":10", "\"id\":0");
    assert!(all(&api(), PAGE, &back).1.incomplete.is_some(), "a cursor never goes back");
    let last = text.replace("\"?page=2\"", "null");
    assert!(all(&api(), PAGE, &last).1.more.is_empty());
}

/// Walks over pages that each say `end`, with `entries` entries each.
fn walked(pages: &[(PageEnd, &str, u64)]) -> Option<String> {
    let mut walk = Walk::new(&api(), PAGE);
    for (end, content, entries) in pages {
        if walk.next_page().unwrap().is_none() {
            return Some("it ended early".into());
        }
        (0..*entries).for_each(|_| walk.count_entry().unwrap());
        walk.page_ended(end.clone(), Sha256Digest::of(content.as_bytes()), *entries > 0);
    }
    assert_eq!(walk.next_page().unwrap(), None);
    walk.incomplete()
}

#[test]
fn a_listing_that_shifts_repeats_itself_or_does_not_add_up_is_incomplete() {
    let page = |more: &str, total: u64, generation: &str| PageEnd {
        more: if more.is_empty() { vec![] } else { vec![more.to_owned()] },
        total: Some(total),
        generation: Some(generation.into()),
        ..PageEnd::default()
    };
    assert_eq!(walked(&[(page("p2", 3, "g"), "a", 2), (page("", 3, "g"), "b", 1)]), None);
    for (why, pages) in [
        ("the total changes", vec![(page("p2", 3, "g"), "a", 2), (page("", 4, "g"), "b", 2)]),
        ("the generation changes", vec![(page("p2", 3, "g"), "a", 2), (page("", 3, "h"), "b", 1)]),
        ("the same page again", vec![(page("p2", 4, "g"), "a", 2), (page("", 4, "g"), "a", 2)]),
        ("back to the first page", vec![(page(PAGE, 2, "g"), "a", 2)]),
        ("fewer than it says", vec![(page("", 3, "g"), "a", 2)]),
        ("more than it says", vec![(page("", 1, "g"), "a", 2)]),
        ("it says so", vec![(PageEnd { incomplete: Some("truncated".into()), ..page("", 2, "g") }, "a", 2)]),
    ] {
        assert!(walked(&pages).is_some(), "{why}");
    }
}

#[test]
fn entries_and_pages_are_bounded() {
    let mut walk = Walk::new(&ListingPlan { entries_max: 2, pages_max: 1, ..api() }, PAGE);
    assert!(walk.next_page().unwrap().is_some());
    assert!(walk.count_entry().is_ok() && walk.count_entry().is_ok());
    assert_eq!(walk.count_entry().unwrap_err().code, "listing.too_large");
    walk.page_ended(PageEnd { more: vec!["p2".into()], ..PageEnd::default() }, Sha256Digest::of(b""), false);
    assert_eq!(walk.next_page().unwrap_err().code, "listing.too_large");
}
