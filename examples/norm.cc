// norm.cc - from C++17: plans owned by a unique_ptr, statuses as exceptions. RMS norm of rows of ones and twos.
#include <cutekernellib/cutekernellib.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

static void check(ckl_status status)
{
    if (status)
        throw std::runtime_error(ckl_error());
}

struct closing {
    void operator()(ckl_device *device) const
    {
        ckl_device_close(device);
    }
    void operator()(ckl_plan *plan) const
    {
        ckl_plan_free(plan);
    }
};

template <typename T> class device_array
{
  public:
    device_array(ckl_device *device, const std::vector<T> &from) : device(device)
    {
        check(ckl_malloc(device, from.size() * sizeof(T), &memory));
        check(ckl_copy_in(device, memory, from.data(), from.size() * sizeof(T), nullptr));
    }
    ~device_array()
    {
        ckl_free(device, memory);
    }
    void copy_to(std::vector<T> &to) const
    {
        check(ckl_copy_out(device, to.data(), memory, to.size() * sizeof(T), nullptr));
    }
    void *memory = nullptr;

  private:
    ckl_device *device;
};

int main()
try {
    constexpr int rows = 3, cols = 640;
    ckl_device *opened;
    check(ckl_device_open(nullptr, &opened));
    std::unique_ptr<ckl_device, closing> device(opened);

    std::vector<float> x(rows * cols, 2), weight(cols, 1), y(rows * cols);
    device_array<float> X(device.get(), x), W(device.get(), weight);
    ckl_norm_desc desc = {};
    desc.dtype = CKL_F32, desc.rows = rows, desc.cols = cols, desc.affine = true;
    ckl_plan *made;
    check(ckl_rmsnorm_plan(device.get(), &desc, &made));
    std::unique_ptr<ckl_plan, closing> plan(made);

    ckl_norm_args args = {};
    args.x = X.memory, args.y = X.memory, args.gamma = W.memory;
    check(ckl_rmsnorm_run(plan.get(), &args, nullptr));
    X.copy_to(y);
    std::printf("%s\n2 becomes %.6f\n", ckl_plan_text(plan.get()), y[0]);
    return std::fabs(y[0] - 1) > 1e-4;
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
