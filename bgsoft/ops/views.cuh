// What a model is shown of a frame. Layout of WARP_VIEW in bgsoft/face/warp.py.

struct View {
    float x_x, x_y, x_0;  // frame x = x_x * u + x_y * v + x_0, continuous pixels of the input (u, v)
    float y_x, y_y, y_0;
    int frame;         // which of the frames that are looked at
    int repeat_edges;  // beyond the frame: its edge samples, or black
};
