//! What is known of each provider, as tables: how it signs where that is a plain HMAC, and where its events say
//! what changed. No provider here has code of its own.

use super::plan::{HmacScheme, SignatureEncoding, WebhookScheme};

/// A provider's signature as the HMAC scheme that it is.
pub(super) struct Preset {
    signature_header: &'static str,
    signature_prefix: &'static str,
    encoding: SignatureEncoding,
    signed: &'static str,
    timestamp_header: Option<&'static str>,
    id_header: Option<&'static str>,
}

/// GitHub signs the body alone: no time and no id are covered, so its own delivery id only spares work. The older
/// `X-Hub-Signature` (SHA-1) is not looked at.
pub(super) const GITHUB: Preset = Preset {
    signature_header: "X-Hub-Signature-256",
    signature_prefix: "sha256=",
    encoding: SignatureEncoding::Hex,
    signed: "{body}",
    timestamp_header: None,
    id_header: Some("X-GitHub-Delivery"),
};

/// Stripe's list `t=…,v1=…,v1=…`: one signature for each of its secrets while they roll. `v0` is for its test tools.
pub(super) const STRIPE: Preset = Preset {
    signature_header: "Stripe-Signature",
    signature_prefix: "v1=",
    encoding: SignatureEncoding::Hex,
    signed: "{timestamp}.{body}",
    timestamp_header: Some("Stripe-Signature"),
    id_header: None,
};

/// Slack.
pub(super) const SLACK: Preset = Preset {
    signature_header: "X-Slack-Signature",
    signature_prefix: "v0=",
    encoding: SignatureEncoding::Hex,
    signed: "v0:{timestamp}:{body}",
    timestamp_header: Some("X-Slack-Request-Timestamp"),
    id_header: None,
};

/// Shopify signs the body alone. Its event id is shared by every webhook of one event; this one is the delivery's own.
pub(super) const SHOPIFY: Preset = Preset {
    signature_header: "X-Shopify-Hmac-Sha256",
    signature_prefix: "",
    encoding: SignatureEncoding::Base64,
    signed: "{body}",
    timestamp_header: None,
    id_header: Some("X-Shopify-Webhook-Id"),
};

impl Preset {
    /// The preset as if it had been written in the sources file.
    pub(super) fn scheme(&self) -> HmacScheme {
        HmacScheme {
            signature_header: self.signature_header.into(),
            signature_prefix: self.signature_prefix.into(),
            encoding: self.encoding,
            signed: Some(self.signed.into()),
            timestamp_header: self.timestamp_header.map(Into::into),
            id_header: self.id_header.map(Into::into),
        }
    }
}

/// Where one event says what it is about, as JSON pointers.
pub(super) struct Layout {
    /// The URI that changed, unless the sources file says otherwise.
    pub(super) uri: &'static str,
    /// The event's id, for providers that send none in a header. A repeated delivery has the same.
    pub(super) id: Option<&'static str>,
    /// Within what the id is unique, if not everywhere.
    pub(super) id_scope: Option<&'static str>,
    /// What kind of event it is.
    pub(super) kind: &'static str,
    /// What upstream calls the version; the first hit counts.
    pub(super) version: &'static [&'static str],
    /// Where events of stores have their place in the order of one thing.
    pub(super) order: Option<&'static str>,
}

/// Payloads in which nothing is known to be the URI: they are written for this product, or `url` is looked at. An
/// ArcGIS event does name one, `changesUrl`, but it is another one each time, and not what is watched.
const PLAIN: Layout =
    Layout { uri: "/source_uri", id: None, id_scope: None, kind: "/type", version: &["/version_hint", "/etag"], order: None };
const STRIPE_EVENT: Layout = Layout { id: Some("/id"), ..PLAIN };
const SLACK_EVENT: Layout = Layout { id: Some("/event_id"), ..PLAIN };
/// An event of Blob Storage, the one kind that names a thing on the web. Its sequencer orders the events of one blob.
const GRID_EVENT: Layout = Layout {
    uri: "/data/url",
    id: Some("/id"),
    id_scope: Some("/topic"),
    kind: "/eventType",
    version: &["/data/eTag"],
    order: Some("/data/sequencer"),
};
/// The same, and those of other stores: `source` and `id` together are unique.
const CLOUD_EVENT: Layout = Layout { id_scope: Some("/source"), kind: "/type", version: &["/data/eTag", "/data/etag"], ..GRID_EVENT };

/// Where events that arrive by `scheme` say what they are about.
pub(super) fn layout(scheme: &WebhookScheme) -> &'static Layout {
    match scheme {
        WebhookScheme::Stripe => &STRIPE_EVENT,
        WebhookScheme::Slack => &SLACK_EVENT,
        WebhookScheme::AzureEventgrid => &GRID_EVENT,
        WebhookScheme::Cloudevents(_) => &CLOUD_EVENT,
        WebhookScheme::StandardWebhooks
        | WebhookScheme::Github
        | WebhookScheme::Gitlab
        | WebhookScheme::Shopify
        | WebhookScheme::Arcgis
        | WebhookScheme::AwsSns(_)
        | WebhookScheme::GooglePubsub(_)
        | WebhookScheme::Hmac(_) => &PLAIN,
    }
}
