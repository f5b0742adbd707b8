//! The fields of API objects that we read, in the shape the API writes them. They live only while one object is
//! read. Go writes an absent list or map as `null`, hence the `Option`s.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use smol_str::SmolStr;

/// Text that borrows from the JSON where that has no escapes.
#[derive(Debug, Default, Clone)]
pub(super) struct Text<'a>(Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Text<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<Text<'_>> for SmolStr {
    fn from(text: Text<'_>) -> Self {
        Self::new(&text.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

/// `null` means the default, as in Go.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// The part that every object has.
#[derive(Deserialize)]
pub(super) struct Bare<'a> {
    #[serde(borrow)]
    pub(super) metadata: Metadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    pub(super) namespace: Option<Text<'a>>,
    pub(super) uid: Option<Text<'a>>,
    pub(super) resource_version: Option<Text<'a>>,
    pub(super) creation_timestamp: Option<Text<'a>>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) labels: Labels<'a>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) annotations: Annotations<'a>,
}

#[derive(Deserialize, Default)]
pub(super) struct Labels<'a> {
    #[serde(borrow, rename = "kubernetes.io/service-name")]
    pub(super) service_name: Option<Text<'a>>,
    #[serde(rename = "topology.kubernetes.io/zone")]
    pub(super) zone: Option<Text<'a>>,
    #[serde(rename = "topology.kubernetes.io/region")]
    pub(super) region: Option<Text<'a>>,
    #[serde(rename = "failure-domain.beta.kubernetes.io/zone")]
    pub(super) old_zone: Option<Text<'a>>,
    #[serde(rename = "failure-domain.beta.kubernetes.io/region")]
    pub(super) old_region: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
pub(super) struct Annotations<'a> {
    #[serde(borrow, rename = "service.alpha.kubernetes.io/tolerate-unready-endpoints")]
    pub(super) tolerate_unready: Option<Text<'a>>,
    #[serde(rename = "endpoints.kubernetes.io/over-capacity")]
    pub(super) over_capacity: Option<Text<'a>>,
    #[serde(rename = "endpoints.kubernetes.io/last-change-trigger-time")]
    pub(super) last_change: Option<Text<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Service<'a> {
    #[serde(borrow)]
    pub(super) metadata: Metadata<'a>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) spec: ServiceSpec<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServiceSpec<'a> {
    #[serde(borrow)]
    pub(super) r#type: Option<Text<'a>>,
    #[serde(rename = "clusterIP")]
    pub(super) cluster_ip: Option<Text<'a>>,
    #[serde(rename = "clusterIPs")]
    pub(super) cluster_ips: Option<Vec<Text<'a>>>,
    pub(super) external_name: Option<Text<'a>>,
    pub(super) publish_not_ready_addresses: Option<bool>,
    pub(super) ports: Option<Vec<Port<'a>>>,
}

#[derive(Deserialize)]
pub(super) struct Port<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    pub(super) protocol: Option<Text<'a>>,
    #[serde(rename = "port")]
    pub(super) number: Option<i64>,
}

#[derive(Deserialize)]
pub(super) struct Endpoints<'a> {
    #[serde(borrow)]
    pub(super) metadata: Metadata<'a>,
    pub(super) subsets: Option<Vec<Subset<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Subset<'a> {
    #[serde(borrow)]
    pub(super) addresses: Option<Vec<Address<'a>>>,
    pub(super) not_ready_addresses: Option<Vec<Address<'a>>>,
    pub(super) ports: Option<Vec<Port<'a>>>,
}

#[derive(Deserialize)]
pub(super) struct Address<'a> {
    #[serde(borrow)]
    pub(super) ip: Option<Text<'a>>,
    pub(super) hostname: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndpointSlice<'a> {
    #[serde(borrow)]
    pub(super) metadata: Metadata<'a>,
    pub(super) address_type: Option<Text<'a>>,
    pub(super) endpoints: Option<Vec<SliceEndpoint<'a>>>,
    pub(super) ports: Option<Vec<Port<'a>>>,
}

#[derive(Deserialize)]
pub(super) struct SliceEndpoint<'a> {
    #[serde(borrow)]
    pub(super) addresses: Option<Vec<Text<'a>>>,
    pub(super) conditions: Option<Conditions>,
    pub(super) hostname: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
pub(super) struct Conditions {
    pub(super) ready: Option<bool>,
    pub(super) serving: Option<bool>,
    pub(super) terminating: Option<bool>,
}
