# net.sh ADDRESS4 ADDRESS6: configures the guest's one network card and puts Soft-RoCE on it
. /checks/lib.sh
modprobe virtio_net
wait_for 5 test -e /sys/class/net/eth0
ip addr add "$1/24" dev eth0
ip -6 addr add "$2/64" dev eth0 nodad
ip link set eth0 up
modprobe crc32_generic
modprobe rdma_rxe
check rdma_link rdma link add rxe0 type rxe netdev eth0
wait_for 10 sh -c "rdma link show rxe0/1 | grep -q 'state ACTIVE'"
echo "# mtu $(cat /sys/class/net/eth0/mtu) $(rdma link show rxe0/1)"
modprobe nvme-rdma
