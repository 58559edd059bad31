//! What has to be so in the dashboard for Grafana. Its queries are asked of a Prometheus by an end-to-end test.

use serde_json::Value;

use crate::build::root;

#[test]
fn every_panel_has_a_place_and_a_number_of_its_own_and_says_what_it_is() {
    let path = root().join("charts/bellwether/files/dashboard.json");
    let text = std::fs::read_to_string(path).unwrap();
    let board: Value = serde_json::from_str(&text).unwrap();
    let panels = board["panels"].as_array().unwrap();
    assert!(!panels.is_empty());
    let rect = |p: &Value| ["x", "y", "w", "h"].map(|k| p["gridPos"][k].as_u64().unwrap());
    for (i, one) in panels.iter().enumerate() {
        let [x, y, w, h] = rect(one);
        assert!(x + w <= 24, "{one}");
        for other in &panels[i + 1..] {
            let [x2, y2, w2, h2] = rect(other);
            let apart = x + w <= x2 || x2 + w2 <= x || y + h <= y2 || y2 + h2 <= y;
            assert!(apart, "{} lies on {}", one["title"], other["title"]);
            assert_ne!(one["id"], other["id"]);
        }
        if one["type"] != "row" {
            let about = one["description"].as_str().unwrap();
            assert!(about.ends_with('.'), "{}", one["title"]);
            assert!(one["targets"][0]["expr"].is_string(), "{}", one["title"]);
        }
    }
}
