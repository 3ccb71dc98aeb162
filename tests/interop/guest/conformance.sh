# conformance.sh ADDRESS: the suite that every device has to pass, on the RDMA device that has the address.
. /checks/lib.sh
modprobe -a ib_uverbs rdma_ucm
INTACT_CONFORMANCE_ADDRESS=$1 /checks/conformance --ignored --test-threads 1 device::conformance::verbs:: \
    >$WORK/conformance.log 2>&1
echo "# $(tail -n 3 $WORK/conformance.log | tr '\n' ' ')"
sed -n -E 's/^test device::conformance::verbs::([a-z_]+) \.\.\. ok$/ok \1/p; s/^test device::conformance::verbs::([a-z_]+) \.\.\. FAILED$/not ok \1: it failed/p' \
    $WORK/conformance.log
grep -A 3 "panicked at" $WORK/conformance.log | sed 's/^/# /' | head -n 40
