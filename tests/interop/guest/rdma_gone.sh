# rdma_gone.sh: takes the software RoCE device away under whoever uses it
. /checks/lib.sh
check rdma_link_delete rdma link delete rxe0
