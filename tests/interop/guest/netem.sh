# netem.sh: from now on loses 1 % of the packets in each direction, and delays 2 % of them past their successors
. /checks/lib.sh
modprobe -a sch_netem sch_ingress ifb act_mirred cls_matchall
tc qdisc add dev eth0 clsact
# bad NAME DIRECTION: by way of an ifb in both directions. A queue of eth0's own that dropped would tell rxe so, which newer
# kernels answer by breaking the queue pair: no network does that.
bad() {
    ip link show "$1" >/dev/null 2>&1 || ip link add "$1" type ifb
    ip link set "$1" mtu "$(cat /sys/class/net/eth0/mtu)" up
    tc qdisc add dev "$1" root netem limit 20000 loss 1% delay 2ms reorder 98% || return 1
    tc filter add dev eth0 "$2" matchall action mirred egress redirect dev "$1"
}
check netem_in bad ifb0 ingress
check netem_out bad ifb1 egress
