//! The admin page before there is a store; with one it is tested through the built server.

use http_body_util::BodyExt;

use super::*;

async fn get_page(admin: &Admin, path: &str) -> (StatusCode, String) {
    let request = Request::builder().uri(path).body(Body::empty()).unwrap();
    let response = admin.handler().router.oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_starting_server_is_alive_and_not_ready() {
    let admin = Admin::new(Registry::default(), "0.0.0");
    assert_eq!(get_page(&admin, "/health/live").await, (StatusCode::OK, "ok\n".to_owned()));
    let (status, body) = get_page(&admin, "/health/ready").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("\"ready\":false") && body.contains("starting"), "{body}");
    let (status, body) = get_page(&admin, "/status").await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "{\"version\":\"0.0.0\",\"phase\":\"starting\"}"));
    let (status, body) = get_page(&admin, "/metrics").await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "# EOF\n"));
    assert_eq!(get_page(&admin, "/").await.0, StatusCode::NOT_FOUND);
    admin.set_phase(Phase::Stopping);
    assert!(get_page(&admin, "/health/ready").await.1.contains("stopping"));
}
