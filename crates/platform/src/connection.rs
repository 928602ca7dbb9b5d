//! What is set on sockets of loopback.

use std::net::IpAddr;
use std::os::fd::AsFd;

use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};

/// The algorithm of congestion control that sends by a clock.
const PACED: &str = "bbr";
/// One that does not, which every kernel has and every user may ask for.
const UNPACED: &str = "reno";

/// Has connections of loopback sent as fast as the other end takes what is sent, also where the system's algorithm is BBR. To be called for a socket that is to connect to `address`, or listens there,
/// before it is connected: a connection that was begun with BBR stays paced. What listens on all addresses is left as it is.
///
/// BBR sends by a clock, so that no queue on the way fills up. In loopback there is none; but a timer for each few packets there is, and in a virtual machine each is a turn to
/// the host (docs/adr/0020).
pub fn unpace_loopback(socket: impl AsFd, address: IpAddr) {
    let socket = socket.as_fd();
    if address.is_loopback() && tcp_congestion(socket).is_ok_and(|name| name == PACED) {
        // If it does not take, the connection is only slower.
        let _ = set_tcp_congestion(socket, UNPACED);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use rustix::net::sockopt::tcp_congestion;

    use super::*;

    #[test]
    fn what_listens_on_loopback_does_not_pace() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let before = tcp_congestion(&listener).unwrap();
        // Where the kernel has no BBR there is nothing to undo.
        let paced = set_tcp_congestion(&listener, PACED).is_ok();
        unpace_loopback(&listener, [192, 0, 2, 1].into());
        assert_eq!(tcp_congestion(&listener).unwrap(), if paced { PACED } else { &before });
        unpace_loopback(&listener, address.ip());
        let _client = TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(tcp_congestion(&accepted).unwrap(), if paced { UNPACED } else { &before });
    }
}
